"""The planner's answer: a plan that accounts for every claimed position, or a decline with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NewType

from semblend.contract.outcome import DISCOVERY_REASONS, DeclineReason, Outcome

DonorId = NewType("DonorId", str)


@dataclass(frozen=True, slots=True)
class TokenRange:
    """Positions ``start <= i < end`` of the recipient."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"empty or negative token range [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ContextRisk:
    """How much the context in which a run's KV was computed differs from the recipient's.

    ``differing_tokens`` of the ``preceding_tokens`` before the run's head are not shared with the donor. Inside the run
    the shared part grows, so the differing fraction falls with the distance from the head: see :meth:`share_at`.
    """

    preceding_tokens: int
    differing_tokens: int
    mean_share: float

    @property
    def head_share(self) -> float:
        return self.share_at(0)

    def share_at(self, distance: int) -> float:
        """Fraction of differing context at the position ``distance`` tokens after the run's head."""
        context = self.preceding_tokens + distance
        return self.differing_tokens / context if context else 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """``length`` donor tokens from ``donor_start`` equal the recipient's tokens from ``target_start``."""

    donor_id: str
    donor_start: int
    target_start: int
    length: int
    risk: ContextRisk

    @property
    def target_end(self) -> int:
        return self.target_start + self.length

    @property
    def shift(self) -> int:
        """By how many positions K must be rotated."""
        return self.target_start - self.donor_start

    @property
    def is_exact(self) -> bool:
        """Whether the donor's KV was computed after the same tokens at the same positions."""
        return self.risk.differing_tokens == 0


@dataclass(frozen=True, slots=True)
class Discovery:
    """A donor that resembles the recipient. Evidence for a router or a report; it never permits reuse."""

    donor_id: str
    similarity: float
    source: str


@dataclass(frozen=True, slots=True)
class ReusePlan:
    """Load ``runs``, compute ``compute``, hand the rest to the engine.

    ``claimed`` lists the ranges the plan covers. Every position in them is in exactly one run or one compute range; the
    constructor raises on anything else, so a plan that exists is a partition. ``recompute_fraction`` of the reused
    tokens is to be recomputed; ``None`` until a gate sets it.
    """

    prompt_tokens: int
    exact_prefix_tokens: int
    claimed: tuple[TokenRange, ...]
    runs: tuple[Run, ...]
    compute: tuple[TokenRange, ...]
    discoveries: tuple[Discovery, ...] = ()
    truncated: bool = False
    recompute_fraction: float | None = None
    reused_tokens: int = field(init=False)
    computed_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        _require_partition(self)
        object.__setattr__(self, "reused_tokens", sum(run.length for run in self.runs))
        object.__setattr__(self, "computed_tokens", sum(len(r) for r in self.compute))

    @property
    def claimed_tokens(self) -> int:
        return sum(len(r) for r in self.claimed)

    @property
    def max_recomputed_tokens(self) -> int:
        """The most reused tokens that may be recomputed."""
        return int((self.recompute_fraction or 0.0) * self.reused_tokens)

    @property
    def claim_end(self) -> int:
        return self.claimed[-1].end

    @property
    def reuse_ratio(self) -> float:
        """Reused tokens over the tokens the exact prefix does not cover."""
        beyond = self.prompt_tokens - self.exact_prefix_tokens
        return self.reused_tokens / beyond if beyond else 0.0

    @property
    def donor_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.donor_id for run in self.runs))


@dataclass(frozen=True, slots=True)
class Decline:
    """A decline is a value, not an error: the engine prefills the prompt as usual."""

    reason: DeclineReason
    detail: str = ""
    discoveries: tuple[Discovery, ...] = ()

    @property
    def outcome(self) -> Outcome:
        return Outcome.SEMANTIC_DISCOVERY_ONLY if self.reason in DISCOVERY_REASONS else Outcome.COLD_FALLBACK


def _require_partition(plan: ReusePlan) -> None:
    if not plan.runs or not plan.claimed:
        raise ValueError("a plan needs at least one run and one claimed range; otherwise return a Decline")
    pieces = sorted(
        [(run.target_start, run.target_end) for run in plan.runs] + [(r.start, r.end) for r in plan.compute]
    )
    position = -1
    claims = iter(plan.claimed)
    end = -1
    for start, stop in pieces:
        if position == end:
            claim = next(claims, None)
            if claim is None or claim.start <= end:
                raise ValueError(f"position {start} is planned but not claimed")
            position, end = claim.start, claim.end
        if start != position or stop > end or stop <= start:
            raise ValueError(
                f"[{start}, {stop}) overlaps, leaves a gap at {position}, or crosses the claim's end {end}"
            )
        position = stop
    if position != end or next(claims, None) is not None:
        raise ValueError("part of a claimed range is neither reused nor computed")
    if plan.claimed[0].start < plan.exact_prefix_tokens:
        raise ValueError("a plan must not claim positions that the engine's own prefix covers")
    if plan.claim_end >= plan.prompt_tokens:
        raise ValueError("a plan must leave at least the last token to the engine")
