"""What a plan means to an engine: how far its KV is exact, and which part of it fits a step, a page or a prefix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import Decline, DeclineReason, ReusePlan, Run, TokenRange, risk_of_runs, shape_of
from semblend.plan.gates import gaps_before, too_few_inexact, worthwhile

if TYPE_CHECKING:
    from semblend.integration.fidelity_options import FidelityOptions
    from semblend.plan.fidelity import FidelityGate
    from semblend.plan.gates import Gates
    from semblend.plan.reuse_cost import ReuseCost

VERIFIED_PER_RUN: Final = 3
MAX_VERIFIED: Final = 96


def exact_until(plan: ReusePlan, shared_prefix: Callable[[str], int]) -> int:
    """Up to where the request's KV equals that of cold prefill: to the first run that moved or had another context.

    A run at its donor's own positions after the donor's own tokens is exact KV; so is what is computed after it.
    ``shared_prefix`` counts the tokens a donor shares with the prompt from 0 on.
    """
    for run in plan.runs:
        if run.shift or shared_prefix(run.donor_id) < run.target_end:
            return run.target_start
    return plan.prompt_tokens


def within_budget(plan: ReusePlan, max_computed_tokens: int) -> ReusePlan | Decline:
    """The leading runs whose gaps and recomputed tokens fit into one step; the engine prefills the rest in chunks."""
    share = plan.recompute_fraction or 0.0
    runs = list(plan.runs)
    while runs:
        end = runs[-1].target_end
        loaded = sum(run.length for run in runs)
        if end - plan.exact_prefix_tokens - loaded + int(share * loaded) <= max_computed_tokens:
            break
        runs.pop()
    else:
        return Decline(
            DeclineReason.CAPACITY, "the first run needs more computed tokens than one step allows", plan.discoveries
        )
    return plan if len(runs) == len(plan.runs) else _with_runs(plan, tuple(runs))


_CANNOT_SELECT: Final = "min_moved_tokens needs a question after the reused text to select recomputed tokens by"


def with_recompute_fraction(
    plan: ReusePlan,
    gate: FidelityGate,
    model: str,
    requested_fraction: float | None,
    options: FidelityOptions,
    gates: Gates,
    *,
    can_recompute: bool,
    max_computed_tokens: int,
) -> ReusePlan | Decline:
    """As many of the leading runs as fit one step, with the recompute fraction of gate, request or deployment; 0
    where tokens cannot be selected. The gate then predicts without a budget, because it would be spent blindly.

    Moved runs are reused only where tokens can be selected and, if answers were measured, a budget keeps them. Fewer
    runs may be another class, so the gate judges what is left; each round drops runs, or ends.
    """
    blind = gate.without_budget()
    kept = filter if can_recompute else takewhile  # a run left out in the middle is a gap to compute
    while True:
        asks = can_recompute and options.can_ask(plan)
        limits = gate.limits(plan, gates) if asks else replace(gates, min_moved_tokens=0)
        allowed = tuple(kept(limits.allows, plan.runs))
        runs = worthwhile(allowed, gates)
        if not runs and not allowed and asks:
            return gate.why_not_moved(plan)
        if not runs:
            if allowed:
                return Decline(DeclineReason.TOO_FEW_INEXACT, too_few_inexact(allowed, gates), plan.discoveries)
            return Decline(DeclineReason.CONTEXT_RISK, _CANNOT_SELECT, plan.discoveries)
        if len(runs) < len(plan.runs):
            plan = _with_runs(plan, runs)
            if (too_little := below_min_reuse_ratio(plan, gates.min_reuse_ratio)) is not None:
                return Decline(DeclineReason.BELOW_MIN_REUSE_RATIO, too_little, plan.discoveries)
            continue
        judged = (gate if asks else blind).judge(plan, model, requested_fraction)
        if isinstance(judged, Decline):
            return judged
        share = judged.recompute_fraction if judged.recompute_fraction is not None else options.fraction_of(judged)
        judged = replace(judged, recompute_fraction=share if can_recompute else 0.0)
        fitting = within_budget(judged, max_computed_tokens)
        if isinstance(fitting, Decline) or fitting is judged:
            return fitting
        plan = replace(fitting, recompute_fraction=None)


def worth_its_time(
    plan: ReusePlan | Decline, cost: ReuseCost, options: FidelityOptions, gates: Gates
) -> ReusePlan | Decline:
    """The last gate: a decline if the plan would take longer than the prefill it saves. None with a
    ``min_reuse_ratio`` of 0, which asks for reuse at any price."""
    if isinstance(plan, Decline) or not gates.min_reuse_ratio or options.recompute_all:
        return plan
    return cost.judge(plan, options.asked_tokens(plan))


def fidelity_of(plan: ReusePlan | None, runs: tuple[Run, ...], selected_by: str | None) -> dict[str, Any]:
    """What the guard and the bench need to know of a blend; null where nothing was loaded.

    ``selected_by`` is the policy that selected the recomputed tokens.
    """
    if plan is None or not runs:
        return dict.fromkeys(("class", "context_risk", "compute_share", "selected_by"))
    return {
        "class": shape_of(runs).value,
        "context_risk": risk_of_runs(runs),
        "compute_share": plan.recompute_fraction,
        "selected_by": selected_by,
    }


def _with_runs(plan: ReusePlan, runs: tuple[Run, ...]) -> ReusePlan:
    """The plan with only these of its runs, claimed up to the last of them; what the others held is computed."""
    start = plan.exact_prefix_tokens
    return replace(plan, claimed=(TokenRange(start, runs[-1].target_end),), runs=runs, compute=gaps_before(start, runs))


def cut_at(plan: ReusePlan, end: int, page_tokens: int) -> ReusePlan | None:
    """The plan claimed up to ``end`` at most, in whole pages that end inside its last run; None if nothing is left."""
    runs = list(plan.runs)
    end = min(end, plan.claim_end)
    while runs:
        last = runs[-1]
        whole_end = min(end, last.target_end) // page_tokens * page_tokens
        if whole_end > last.target_start:
            runs[-1] = replace(last, length=whole_end - last.target_start)
            return _with_runs(plan, tuple(runs))
        runs.pop()
    return None


def within_gaps(plan: ReusePlan, max_holes: int) -> ReusePlan:
    """The leading runs with at most ``max_holes`` gaps before and between them."""
    runs = list(plan.runs)
    position, gaps, kept = plan.exact_prefix_tokens, 0, 0
    for run in runs:
        gaps += run.target_start > position
        if gaps > max_holes:
            break
        position, kept = run.target_end, kept + 1
    return plan if kept in (0, len(runs)) else _with_runs(plan, tuple(runs[:kept]))


def prefix_shaped(plan: ReusePlan, min_reuse_ratio: float, *, may_rotate: bool) -> ReusePlan | Decline:
    """The leading runs that follow the exact prefix without a gap; only unmoved ones unless rotation was verified."""
    position = plan.exact_prefix_tokens
    runs = []
    for run in plan.runs:
        if run.target_start != position or (run.shift and not may_rotate):
            break
        runs.append(run)
        position = run.target_end
    if not runs:
        return Decline(
            DeclineReason.UNSUPPORTED_MODE,
            "nothing reusable continues the exact prefix, and this deployment cannot compute gaps",
            plan.discoveries,
        )
    leading = _with_runs(plan, tuple(runs))
    if (why := below_min_reuse_ratio(leading, min_reuse_ratio)) is not None:
        return Decline(DeclineReason.BELOW_MIN_REUSE_RATIO, why, plan.discoveries)
    return leading


def below_min_reuse_ratio(plan: ReusePlan, min_reuse_ratio: float) -> str | None:
    """Why too little of the prompt is left to reuse; None if it is enough."""
    reused = sum(run.length for run in plan.runs)
    beyond = plan.prompt_tokens - plan.exact_prefix_tokens
    if reused >= min_reuse_ratio * beyond:
        return None
    return f"{reused} of {beyond} tokens reusable; min_reuse_ratio is {min_reuse_ratio:.3f}"


def verification_positions(runs: Sequence[Run]) -> NDArray[np.int64]:
    """Loaded positions to compare with the model: head, middle and end of every run, of the first runs if too many."""
    parts = [np.linspace(run.target_start, run.target_end - 1, VERIFIED_PER_RUN).astype(np.int64) for run in runs]
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts[: MAX_VERIFIED // VERIFIED_PER_RUN]]))
