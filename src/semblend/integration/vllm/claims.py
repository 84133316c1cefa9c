"""What a plan means to this engine: how far its KV stays exact, and what of it needs no computed holes."""

from __future__ import annotations

from semblend.contract import Decline, DeclineReason, ReusePlan, TokenRange


def exact_until(plan: ReusePlan) -> int:
    """Up to where the request's KV is that of cold prefill: to the first run that was moved or saw another context.

    A run at its donor's own positions behind the donor's own tokens is exact KV; so is what is computed behind it.
    """
    for run in plan.runs:
        if run.shift or run.risk.differing_tokens:
            return run.target_start
    return plan.prompt_tokens


def prefix_shaped(plan: ReusePlan, min_reuse_ratio: float, *, may_rotate: bool) -> ReusePlan | Decline:
    """The leading runs that follow the exact prefix without a hole; only unmoved ones unless rotation was proven."""
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
            "nothing reusable continues the exact prefix, and this deployment computes no holes",
            plan.discoveries,
        )
    beyond = plan.prompt_tokens - plan.exact_prefix_tokens
    reused = position - plan.exact_prefix_tokens
    if reused < min_reuse_ratio * beyond:
        detail = f"{reused} of {beyond} tokens < {min_reuse_ratio:.3f}"
        return Decline(DeclineReason.BELOW_MIN_REUSE_RATIO, detail, plan.discoveries)
    return ReusePlan(
        prompt_tokens=plan.prompt_tokens,
        exact_prefix_tokens=plan.exact_prefix_tokens,
        claimed=(TokenRange(plan.exact_prefix_tokens, position),),
        runs=tuple(runs),
        compute=(),
        recompute_layers=plan.recompute_layers,
        discoveries=plan.discoveries,
        truncated=plan.truncated,
    )
