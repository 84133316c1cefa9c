"""The gates between verified runs and a plan. Each decline has a reason; a plan that passes is a partition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError
from semblend.contract import ContextRisk, Decline, DeclineReason, Discovery, ReusePlan, Run, TokenRange
from semblend.contract.shape import MOVED_SHARE
from semblend.plan.compose import DONOR, DONOR_START, LENGTH, TARGET_START
from semblend.plan.risk import risk_of


@dataclass(frozen=True, slots=True)
class Gates:
    """Limits that a deployment sets.

    ``min_run_tokens``          shortest run of equal tokens to reuse; runs below 64 tokens may not be found
    ``min_fragment_tokens``     shortest piece used from approximate alignment when exact-only is off
    ``min_reuse_ratio``         minimum of planned tokens over the tokens the exact prefix does not cover
    ``min_inexact_tokens``      fewest tokens to reuse after differing context; with fewer, only runs whose context is
                                the same are reused: a few inexact tokens save little and are often near the answer
    ``boundary_recompute_tokens`` tokens recomputed at the head of a run whose whole context differs; with a partly
                                shared context, times the square root of the differing fraction
    ``max_context_share``       maximum mean fraction of differing context; runs above it are not reused, unless
                                ``min_moved_tokens`` allows it
    ``min_moved_tokens``        fewest tokens of a run that is reused whatever precedes it; 0: none. A tenth of its plan
                                is recomputed (``default_recompute_fraction``)
    ``min_prompt_tokens``       shorter prompts are not looked up
    ``boundary_multiple_tokens`` runs begin and end at multiples of this in the recipient, rounded inward, which limits
                                what reuse reveals about where content begins. 1 disables rounding
    """

    min_run_tokens: int = 64
    min_fragment_tokens: int = 16
    min_reuse_ratio: float = 0.10
    min_inexact_tokens: int = 0
    boundary_recompute_tokens: int = 0
    max_context_share: float = 1.0
    min_moved_tokens: int = 0
    min_prompt_tokens: int = 64
    boundary_multiple_tokens: int = 1

    def __post_init__(self) -> None:
        if self.min_run_tokens < 1 or self.min_fragment_tokens < 1:
            raise ConfigurationError("min_run_tokens and min_fragment_tokens must be at least 1")
        if not 0.0 <= self.min_reuse_ratio <= 1.0 or not 0.0 <= self.max_context_share <= 1.0:
            raise ConfigurationError("min_reuse_ratio and max_context_share must be between 0 and 1")
        if self.boundary_recompute_tokens < 0 or self.min_inexact_tokens < 0 or self.min_moved_tokens < 0:
            raise ConfigurationError(
                "boundary_recompute_tokens, min_inexact_tokens and min_moved_tokens must not be negative"
            )
        if self.boundary_multiple_tokens < 1:
            raise ConfigurationError("boundary_multiple_tokens must be at least 1 (1 disables rounding)")

    def allows(self, run: Run) -> bool:
        """Whether the run's context, and its length, let it be reused."""
        return run.risk.mean_share <= self.max_context_share or 0 < self.min_moved_tokens <= run.length


# What the vLLM and SGLang adapters apply unless configured, and what subscribers assume of a connector that announces
# no gates. Measured on the CPU backend; see the results of the quality bench before changing them. With 256 as the
# minimum of inexact tokens, prompts of 540 tokens lost 4 of 62 right answers; from 768 on, default_recompute_fraction
# recomputes a twentieth in short prompts.
ADAPTER_GATES: Final = Gates(min_inexact_tokens=768, boundary_recompute_tokens=64, max_context_share=MOVED_SHARE)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The recipient as the gates see it."""

    tokens: int
    exact_prefix_tokens: int


def decide(
    prompt: Prompt,
    pieces: NDArray[np.int64],
    risks: Sequence[ContextRisk],
    donor_ids: Sequence[str],
    gates: Gates,
    *,
    strict_prefix_boundary: bool,
    discoveries: tuple[Discovery, ...] = (),
    truncated: bool = False,
) -> ReusePlan | Decline:
    """Turn composed pieces into a plan, or decline with a reason."""
    loaded = [run for run in reused_parts(pieces, risks, donor_ids, gates) if run is not None]
    runs = tuple(run for run in loaded if gates.allows(run))
    if loaded and not runs:
        lowest = min(run.risk.mean_share for run in loaded)
        detail = f"lowest mean fraction of differing context {lowest:.3f}; {_context_limit(gates)}"
        return Decline(DeclineReason.CONTEXT_RISK, detail, discoveries)
    kept = worthwhile(runs, gates)
    if runs and not kept:
        return Decline(DeclineReason.TOO_FEW_INEXACT, too_few_inexact(runs, gates), discoveries)
    runs = kept
    reused = sum(run.length for run in runs)
    beyond = prompt.tokens - prompt.exact_prefix_tokens
    if not runs:
        reason = DeclineReason.NOT_TOKEN_IDENTICAL if discoveries else DeclineReason.NO_CANDIDATE
        return Decline(reason, "", discoveries)
    if reused < gates.min_reuse_ratio * beyond:
        detail = f"{reused} of {beyond} tokens reusable; min_reuse_ratio is {gates.min_reuse_ratio:.3f}"
        return Decline(DeclineReason.BELOW_MIN_REUSE_RATIO, detail, discoveries)
    if strict_prefix_boundary:
        claimed: tuple[TokenRange, ...] = (TokenRange(prompt.exact_prefix_tokens, runs[-1].target_end),)
        compute = gaps_before(prompt.exact_prefix_tokens, runs)
    else:
        claimed, compute = _joined(runs), ()
    return ReusePlan(
        prompt_tokens=prompt.tokens,
        exact_prefix_tokens=prompt.exact_prefix_tokens,
        claimed=claimed,
        runs=runs,
        compute=compute,
        discoveries=discoveries,
        truncated=truncated,
    )


def worthwhile(runs: tuple[Run, ...], gates: Gates) -> tuple[Run, ...]:
    """All runs, or the leading exact ones if the others are too few tokens together."""
    return runs if _inexact_tokens(runs) >= gates.min_inexact_tokens else tuple(run for run in runs if run.is_exact)


def too_few_inexact(runs: Sequence[Run], gates: Gates) -> str:
    return f"{_inexact_tokens(runs)} tokens after differing context; min_inexact_tokens is {gates.min_inexact_tokens}"


def _context_limit(gates: Gates) -> str:
    limit = f"max_context_share is {gates.max_context_share:.3f}"
    return f"{limit} for runs below {gates.min_moved_tokens} tokens" if gates.min_moved_tokens else limit


def _inexact_tokens(runs: Sequence[Run]) -> int:
    return sum(run.length for run in runs if not run.is_exact)


def reused_parts(
    pieces: NDArray[np.int64], risks: Sequence[ContextRisk], donor_ids: Sequence[str], gates: Gates
) -> list[Run | None]:
    """Of each piece the run to reuse; None: nothing is left of it once its head is recomputed."""
    return [_run(row, risk, donor_ids, gates) for row, risk in zip(pieces.tolist(), risks, strict=True)]


def _run(row: list[int], risk: ContextRisk, donor_ids: Sequence[str], gates: Gates) -> Run | None:
    """The reused part of a piece. A run whose whole context is shared has no boundary to recompute."""
    skip = math.ceil(gates.boundary_recompute_tokens * math.sqrt(risk.head_share))
    skip += -(row[TARGET_START] + skip) % gates.boundary_multiple_tokens
    surplus = (row[TARGET_START] + row[LENGTH]) % gates.boundary_multiple_tokens
    length = row[LENGTH] - skip - surplus
    if skip or surplus:
        if length < gates.min_fragment_tokens:
            return None
        risk = risk_of(risk.preceding_tokens + skip, risk.differing_tokens, length)
    return Run(donor_ids[row[DONOR]], row[DONOR_START] + skip, row[TARGET_START] + skip, length, risk)


def gaps_before(start: int, runs: Sequence[Run]) -> tuple[TokenRange, ...]:
    """What lies before and between the runs from ``start`` on."""
    gaps: list[TokenRange] = []
    for run in runs:
        if run.target_start > start:
            gaps.append(TokenRange(start, run.target_start))
        start = run.target_end
    return tuple(gaps)


def _joined(runs: Sequence[Run]) -> tuple[TokenRange, ...]:
    ranges: list[TokenRange] = []
    for run in runs:
        if ranges and ranges[-1].end == run.target_start:
            ranges[-1] = TokenRange(ranges[-1].start, run.target_end)
        else:
            ranges.append(TokenRange(run.target_start, run.target_end))
    return tuple(ranges)
