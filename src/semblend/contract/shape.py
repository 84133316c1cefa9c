"""The workload class of a plan, by its shape alone: runs in, one of four classes out.

Gates and the guard keep state per class; the set of classes is small and closed, so that state is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

from semblend.contract.outcome import DeclineReason
from semblend.contract.plan import Run

MOVED_SHARE: Final = 0.35
"""A run with more differing context is moved. The default gates allow it only where it is long, see
``Gates.min_moved_tokens``."""


class PlanShape(StrEnum):
    """What a recipient did to its donors' content."""

    NEW_INSTRUCTION = "new_instruction"  # one run: the same content after a different beginning
    EDIT = "edit"  # several runs of one donor, in the donor's order
    REORDER = "reorder"  # runs of one donor, not in its order
    COMPOSITION = "composition"  # runs of several donors


def shape_of(runs: Sequence[Run]) -> PlanShape:
    if len({run.donor_id for run in runs}) > 1:
        return PlanShape.COMPOSITION
    if len(runs) == 1:
        return PlanShape.NEW_INSTRUCTION
    ordered = sorted(runs, key=lambda run: run.target_start)
    in_order = all(first.donor_start < second.donor_start for first, second in pairwise(ordered))
    return PlanShape.EDIT if in_order else PlanShape.REORDER


def risk_of_runs(runs: Sequence[Run]) -> float:
    """Mean fraction of differing context over all reused tokens, between 0 and 1."""
    tokens = sum(run.length for run in runs)
    return sum(run.length * run.risk.mean_share for run in runs) / tokens if tokens else 0.0


def guard_off(shape: PlanShape) -> DeclineReason:
    """The decline reason of a class that the guard has turned off."""
    return DeclineReason(f"guard_off:{shape.value}")
