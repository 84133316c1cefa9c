"""Fills a claim whose runs are loaded: measures what the policy needs, selects tokens, computes them with the gaps.

Called by the adapters between writing the runs and the engine's own forward pass.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from semblend.contract import Run, TokenRange
from semblend.integration.core.probes import can_ask, question_attention
from semblend.plan.selection import (
    FALLBACK,
    MAX_QUESTION_TOKENS,
    Selection,
    choose,
    evidence_of,
    joined,
    needs_question,
    with_attention,
)

if TYPE_CHECKING:
    from semblend.integration.core.open_request import OpenRequest


@dataclass(frozen=True, slots=True)
class Fill:
    """A claim whose ``runs`` are loaded and whose ``gaps`` are not. ``question`` is the rest of the prompt, None where
    it cannot be computed yet.
    """

    runs: tuple[Run, ...]
    gaps: tuple[TokenRange, ...]
    question: TokenRange | None
    selection: Selection


@dataclass(frozen=True, slots=True)
class Filled:
    """What was computed: gaps and recomputed tokens. ``policy`` selected the latter; None: none were.

    ``policy`` may be the fallback. ``select_ms`` is the time of the selection, with any gaps computed for the question.
    """

    policy: str | None
    recomputed_tokens: int
    ranges: tuple[TokenRange, ...]
    select_ms: float

    @property
    def groups(self) -> int:
        """Number of computed ranges. Each is a sequence of its own in the batch, which costs time beyond its tokens."""
        return len(self.ranges)


def fill(request: OpenRequest, command: Fill) -> Filled:
    """Compute the gaps and the tokens chosen for recomputation. The cache then holds every position of the claim."""
    started = time.perf_counter()
    selection = command.selection
    has_question = (
        command.question is not None and len(command.question) <= MAX_QUESTION_TOKENS and can_ask(request.layers)
    )
    if needs_question(selection.policy) and not has_question:
        selection = replace(selection, policy=FALLBACK)
    chosen, gaps = _choose(request, command, selection)
    ranges = joined(gaps, chosen)
    select_ms = (time.perf_counter() - started) * 1e3
    if ranges:
        request.compute(ranges)
    return Filled(selection.policy, len(chosen), joined(command.gaps, chosen), select_ms)


def _choose(
    request: OpenRequest, command: Fill, selection: Selection
) -> tuple[NDArray[np.int64], tuple[TokenRange, ...]]:
    """Positions to recompute, and the gaps still to be computed with them."""
    evidence = evidence_of(command.runs)
    budget = int(selection.fraction * len(evidence.positions))
    if budget in (0, len(evidence.positions)):  # nothing to select
        return evidence.positions[:budget], command.gaps
    if not needs_question(selection.policy) or command.question is None:
        return choose(selection, evidence), command.gaps
    attention = question_attention(request, (*command.gaps, command.question))
    # The gaps were computed with the question; computing them again after the recomputed tokens gains little.
    return choose(selection, with_attention(evidence, attention)), ()
