"""Which reused positions are recomputed: a policy and what is known of each position in, positions out.

Policies are plug-ins (entry points ``semblend.selection``). They see numbers, never tensors: an adapter that can read
the engine's tensors measures the attention that a policy needs and recomputes the selected positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, ContractError
from sembase.registry import Registry
from semblend.contract import Run, TokenRange, risk_of_runs
from semblend.contract.shape import MOVED_SHARE


@dataclass(frozen=True, slots=True)
class Selection:
    """Recompute ``fraction`` of the reused tokens, selected by ``policy``.

    Selected tokens at most ``bridge_tokens`` apart are joined within the same budget: fewer groups cost less.
    """

    policy: str
    fraction: float
    bridge_tokens: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.fraction <= 1.0:
            raise ConfigurationError(
                f"the fraction of tokens to recompute must be between 0 and 1, not {self.fraction}"
            )
        if self.bridge_tokens < 0:
            raise ConfigurationError("bridge_tokens must not be negative")


# A longer end of the prompt is new text, not a question: probing with it would cost as much as it could save.
MAX_QUESTION_TOKENS: Final = 512
# The policy used where the configured one cannot run.
FALLBACK: Final = "first"
DEFAULT_POLICY: Final = "question"
# Defaults of a deployment that sets no fraction. In a short prompt more of the text is close to a seam, and selection
# costs less because each selected stretch attends to everything before it. With fewer reused tokens than the minimum,
# selecting takes as long as computing all of them.
MIN_SELECTABLE_TOKENS: Final = 768
SHORT_PROMPT_TOKENS: Final = 1536
SHORT_PROMPT_FRACTION: Final = 0.05
MOVED_FRACTION: Final = 0.1


def is_question(tokens: int) -> bool:
    """Whether the end of a prompt, after what a plan claims, is short enough to select with."""
    return 0 < tokens <= MAX_QUESTION_TOKENS


def is_moved(run: Run) -> bool:
    """Whether most of what the run's KV has read is not before it in the recipient."""
    return run.risk.mean_share > MOVED_SHARE


def default_recompute_fraction(runs: Sequence[Run]) -> float:
    """The default fraction: the largest for moved runs; 0 for few reused tokens, for long prompts with most of their
    context, and where the donor's context was the same."""
    if any(is_moved(run) for run in runs):
        return MOVED_FRACTION
    is_worth_it = sum(run.length for run in runs) >= MIN_SELECTABLE_TOKENS
    is_short = is_worth_it and max(run.target_end for run in runs) < SHORT_PROMPT_TOKENS
    return SHORT_PROMPT_FRACTION if is_short and risk_of_runs(runs) > 0.0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """One entry per loaded position, ascending. 8 bytes each, and the attention.

    ``distance`` counts from the head of the position's run; ``context_share`` is the fraction of its context that
    differs from the donor's. ``attention`` [layers, heads, positions] is the attention the end of the prompt gives each
    position, mean over its queries.
    """

    positions: NDArray[np.int64]
    distance: NDArray[np.int64]
    context_share: NDArray[np.float64]
    attention: NDArray[np.float32] | None = None

    def measured_attention(self) -> NDArray[np.float32]:
        if self.attention is None:
            raise ContractError("the policy needs attention, which was not measured")
        return self.attention


Score = Callable[[Evidence], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Policy:
    """``score`` rates each position; the highest are recomputed. ``needs_attention``: it reads that of the evidence."""

    score: Score
    needs_attention: bool = False


def needs_question(policy: str) -> bool:
    """Whether the policy reads the attention of the end of the prompt."""
    return POLICIES.get(policy).needs_attention


POLICIES: Final[Registry[Policy]] = Registry("selection policy", "semblend.selection")
for _name in ("first", "question"):
    POLICIES.register(_name, f"semblend.plan.selection_policies:{_name.upper()}")


def evidence_of(runs: Sequence[Run]) -> Evidence:
    """What is known of the positions of the runs from the plan alone."""
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


def with_attention(evidence: Evidence, attention: NDArray[np.float32]) -> Evidence:
    """Add the attention, which is indexed by prompt position in its last axis; only reused positions are kept."""
    return replace(evidence, attention=attention[..., evidence.positions])


def choose(selection: Selection, evidence: Evidence) -> NDArray[np.int64]:
    """The positions to recompute, ascending; never more than the fraction allows."""
    budget = int(selection.fraction * len(evidence.positions))
    if budget == 0:
        return np.empty(0, np.int64)
    score = POLICIES.get(selection.policy).score(evidence)
    # Stable: equal scores go to the earlier position, so the selection is the same on every rank and in every run.
    order = np.argsort(-score, kind="stable")
    taken = order[:budget] if not selection.bridge_tokens else _bridged(order, evidence.positions, budget, selection)
    chosen: NDArray[np.int64] = np.sort(evidence.positions[taken])
    return chosen


def _bridged(
    order: NDArray[np.int64], positions: NDArray[np.int64], budget: int, selection: Selection
) -> NDArray[np.int64]:
    """As many of the best positions as fit into the budget together with the gaps between them."""
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
    """Indices with the gaps closed. A gap is closed only if all positions in it are reused ones."""
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


def joined(gaps: Iterable[TokenRange], chosen: NDArray[np.int64]) -> tuple[TokenRange, ...]:
    """Gaps of a plan and selected positions as one ascending list of maximal ranges."""
    parts = [np.arange(gap.start, gap.end) for gap in gaps]
    return as_ranges(np.unique(np.concatenate([np.empty(0, np.int64), *parts, chosen])))
