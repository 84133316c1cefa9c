"""Which loaded positions are computed after all: a policy and what is known of each position in, positions out.

Policies are plug-ins (entry points ``semblend.selection``). They see numbers, never tensors: an adapter that can look
into the engine supplies the probes a policy asks for, and computes what was chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, ContractError
from sembase.registry import Registry
from semblend.contract import Run, TokenRange, risk_of_runs


class Probe(StrEnum):
    """What a worker can find out once the runs are loaded. Each costs a pass: see the adapter."""

    ATTENTION = "attention"
    DEVIATION = "deviation"


@dataclass(frozen=True, slots=True)
class Selection:
    """``share`` of the loaded tokens is computed after all, chosen by ``policy``.

    Chosen tokens at most ``bridge_tokens`` apart are joined, within the same budget: fewer groups cost less.
    """

    policy: str
    share: float
    bridge_tokens: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ConfigurationError(f"the share of tokens to compute lies between 0 and 1, not {self.share}")
        if self.bridge_tokens < 0:
            raise ConfigurationError("bridge_tokens is not negative")


# A longer end of the prompt is new text, not a question: asking it would cost as much as it could save.
MAX_QUESTION_TOKENS: Final = 512
# Where a policy cannot be asked.
FALLBACK: Final = "first"
# Where a deployment says nothing. In a short prompt more of the text stands near a seam, and a choice costs less, for
# each chosen stretch walks all that precedes it. To choose from little takes as long as to compute it.
LEAST_TO_CHOOSE_FROM: Final = 768
SHORT_PROMPT_TOKENS: Final = 1536
SHORT_PROMPT_SHARE: Final = 0.05


def usual_share(runs: Sequence[Run]) -> float:
    """The share of the loaded tokens that is computed after all by default: none of little, exact or far KV."""
    is_worth_it = sum(run.length for run in runs) >= LEAST_TO_CHOOSE_FROM
    is_short = is_worth_it and max(run.target_end for run in runs) < SHORT_PROMPT_TOKENS
    return SHORT_PROMPT_SHARE if is_short and risk_of_runs(runs) > 0.0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """One entry per loaded position, ascending. 8 bytes each, and the probes.

    ``distance`` counts from the head of the position's run, ``context_share`` is the share of its context that differs
    from the donor's. ``attention`` [layers, heads, positions] is what the end of the prompt gives each position, mean
    over its queries; ``deviation`` is how far K and V at the probe layer lie from what they would be, relative.
    """

    positions: NDArray[np.int64]
    distance: NDArray[np.int64]
    context_share: NDArray[np.float64]
    attention: NDArray[np.float32] | None = None
    deviation: NDArray[np.float32] | None = None

    def seen(self, probe: Probe) -> NDArray[np.float32]:
        found = self.attention if probe is Probe.ATTENTION else self.deviation
        if found is None:
            raise ContractError(f"the policy needs the probe '{probe}', which was not taken")
        return found


Score = Callable[[Evidence], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Policy:
    """``score`` gives each position a figure; the highest are computed. ``needs`` names the probes it reads."""

    score: Score
    needs: frozenset[Probe] = frozenset()


def needs_question(policy: str) -> bool:
    """Whether it reads what the end of the prompt attends to."""
    return Probe.ATTENTION in POLICIES.get(policy).needs


POLICIES: Final[Registry[Policy]] = Registry("selection policy", "semblend.selection")
for _name in ("first", "random", "deviation", "question", "question_by_deviation", "question_or_deviation"):
    POLICIES.register(_name, f"semblend.plan.selection_policies:{_name.upper()}")


def evidence_of(runs: Sequence[Run]) -> Evidence:
    """What the plan alone says of the positions of its runs."""
    ordered = sorted(runs, key=lambda run: run.target_start)
    parts = [np.arange(run.target_start, run.target_end) for run in ordered]
    distances = [np.arange(run.length) for run in ordered]
    shares = []
    for run, distance in zip(ordered, distances, strict=True):
        context = np.maximum(1, run.risk.preceding_tokens + distance)
        shares.append(run.risk.differing_tokens / context)
    empty = np.empty(0, np.int64)
    return Evidence(
        np.concatenate([empty, *parts]),
        np.concatenate([empty, *distances]),
        np.concatenate([empty.astype(float), *shares]),
    )


def with_probes(
    evidence: Evidence, attention: NDArray[np.float32] | None, deviation: NDArray[np.float32] | None
) -> Evidence:
    """Probes are indexed by prompt position in their last axis and cut down to the loaded ones here."""
    at = evidence.positions
    return replace(
        evidence,
        attention=None if attention is None else attention[..., at],
        deviation=None if deviation is None else deviation[..., at],
    )


def choose(selection: Selection, evidence: Evidence) -> NDArray[np.int64]:
    """The positions to compute, ascending; never more than the share allows."""
    budget = int(selection.share * len(evidence.positions))
    if budget == 0:
        return np.empty(0, np.int64)
    score = POLICIES.get(selection.policy).score(evidence)
    # Stable: equal scores go to the earlier position, so that a choice is the same on every rank and in every run.
    order = np.argsort(-score, kind="stable")
    taken = order[:budget] if not selection.bridge_tokens else _bridged(order, evidence.positions, budget, selection)
    chosen: NDArray[np.int64] = np.sort(evidence.positions[taken])
    return chosen


def _bridged(
    order: NDArray[np.int64], positions: NDArray[np.int64], budget: int, selection: Selection
) -> NDArray[np.int64]:
    """As many of the best as fit into the budget together with the gaps between them."""
    low, high = 1, budget
    best = order[:1]
    while low <= high:
        middle = (low + high) // 2
        filled = _filled(np.sort(order[:middle]), positions, selection.bridge_tokens)
        if len(filled) <= budget:
            best, low = filled, middle + 1
        else:
            high = middle - 1
    return best


def _filled(taken: NDArray[np.int64], positions: NDArray[np.int64], bridge: int) -> NDArray[np.int64]:
    """Indices with the gaps closed. A gap counts in indices and in positions: what is not loaded is no gap of ours."""
    mask = np.zeros(len(positions) + 1, np.int64)
    mask[taken] = 1
    gap = np.diff(taken)
    close = (gap > 1) & (gap - 1 <= bridge) & (np.diff(positions[taken]) == gap)
    for start, end in zip(taken[:-1][close].tolist(), taken[1:][close].tolist(), strict=True):
        mask[start:end] = 1
    return np.flatnonzero(mask[:-1])


def as_ranges(positions: NDArray[np.int64]) -> tuple[TokenRange, ...]:
    """Ascending positions as maximal contiguous ranges."""
    if not len(positions):
        return ()
    cuts = np.flatnonzero(np.diff(positions) != 1) + 1
    return tuple(TokenRange(int(part[0]), int(part[-1]) + 1) for part in np.split(positions, cuts))


def joined(holes: Iterable[TokenRange], chosen: NDArray[np.int64]) -> tuple[TokenRange, ...]:
    """Holes and chosen positions as one ascending list of maximal ranges."""
    parts = [np.arange(hole.start, hole.end) for hole in holes]
    return as_ranges(np.unique(np.concatenate([np.empty(0, np.int64), *parts, chosen])))
