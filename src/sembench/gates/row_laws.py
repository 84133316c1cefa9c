"""Consistency checks within one row: counts within their totals, reuse with evidence, times in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sembench.gates.request_ids import item_of
from sembench.metrics.rows import ArmRow, BackendRow, PairRow, PlanRow, RequestRow
from semblend.contract import Outcome

_SCORES: Final = ("token_recall", "f1", "rouge_l", "answer_score")
_JUDGING: Final = ("token_recall", "rouge_l", "exact_match")
_ROUNDING: Final = 1 + 1e-9


def row_failures(row: RequestRow, block_size: int | None, threshold: float | None = None) -> Iterator[str]:
    """``threshold`` is the run's minimum score of a good answer; None if it is not recorded."""
    yield from _token_failures(row, block_size)
    for name, plan in (("plan", row.plan), ("token_plan", row.token_plan)):
        if plan is not None:
            yield from (f"{name}: {failure}" for failure in _plan_failures(plan, row))
    for name, arm, request_id in (("cold", row.cold, f"cold.{row.item_id}"), ("warm", row.warm, row.item_id)):
        if arm is not None:
            yield from (f"{name}: {failure}" for failure in _arm_failures(arm, request_id))
    yield from _contamination_failures(row, block_size)
    yield from _pair_failures(row)
    yield from _confirmation_failures(row, block_size)
    if row.backend is not None:
        yield from (f"backend: {failure}" for failure in _backend_failures(row.backend, row))
    yield from _quality_failures(row, threshold)


def _quality_failures(row: RequestRow, threshold: float | None) -> Iterator[str]:
    """By the item's own score; without one (no known answer, or an old result) at least one score must agree."""
    judged = row.cold if row.warm is None else row.warm
    if row.quality_pass is None or judged is None:
        return
    if judged.status != "ok":
        yield f"quality was judged although the request ended with status {judged.status!r}"
    elif judged.answer_right is not None:
        if row.quality_pass is not judged.answer_right:
            yield f"quality_pass is {row.quality_pass}, but answer_right is {judged.answer_right}"
    elif threshold is not None:
        scores = {name: score for name in _JUDGING if (score := getattr(judged, name)) is not None}
        opinions = {score if isinstance(score, bool) else score >= threshold for score in scores.values()}
        if row.quality_pass not in opinions:
            shown = ", ".join(f"{name} {score:g}" for name, score in scores.items()) or "no score"
            yield f"quality_pass is {row.quality_pass} with {shown}, at a threshold of {threshold:g}"


def _token_failures(row: RequestRow, block_size: int | None) -> Iterator[str]:
    if block_size is not None and row.total_blocks != row.prompt_tokens // block_size:
        expected = row.prompt_tokens // block_size
        yield f"total_blocks is {row.total_blocks}, but {row.prompt_tokens} tokens are {expected} blocks"
    elif row.total_blocks > row.prompt_tokens:
        yield "more blocks than tokens"
    for name in ("exact_hit_blocks", "exact_prefix_blocks", "backend_confirmed_blocks"):
        blocks = getattr(row, name)
        if blocks is not None and blocks > row.total_blocks:
            yield f"{name} {blocks} of {row.total_blocks} blocks"
    judged = row.cold if row.warm is None else row.warm
    if judged is not None and judged.prompt_tokens is not None and judged.prompt_tokens > row.prompt_tokens:
        yield f"prompt_tokens is {row.prompt_tokens}, but the server counted {judged.prompt_tokens}"
    for name in ("any_position_tokens", "exact_prefix_tokens", "plan_beyond_prefix_tokens", "changed_tokens"):
        tokens = getattr(row, name)
        if tokens is not None and tokens > row.prompt_tokens:
            yield f"{name} {tokens} of {row.prompt_tokens} tokens"


def _plan_failures(plan: PlanRow, row: RequestRow) -> Iterator[str]:
    if not plan.eligible_blocks <= plan.candidate_blocks <= row.total_blocks:
        yield f"{plan.eligible_blocks} eligible of {plan.candidate_blocks} candidate of {row.total_blocks} blocks"
    if not plan.candidate_blocks <= plan.planned_tokens <= row.prompt_tokens:
        yield f"{plan.candidate_blocks} candidate blocks from {plan.planned_tokens} of {row.prompt_tokens} tokens"
    if plan.decline_reason is not None and plan.planned_tokens:
        yield f"declined ({plan.decline_reason}), but has planned tokens"


def _arm_failures(arm: ArmRow, request_id: str) -> Iterator[str]:
    if arm.request_id != request_id:
        yield f"request_id is {arm.request_id!r}, not {request_id!r}: figures of another request"
    if arm.ttft_ms is not None and not arm.ttft_ms > 0:
        yield f"ttft_ms is {arm.ttft_ms:g}, must be above 0"
    if arm.ttft_ms is not None and arm.total_ms is not None and arm.ttft_ms > arm.total_ms * _ROUNDING:
        yield f"first token at {arm.ttft_ms:g} ms, after the end at {arm.total_ms:g} ms"
    if arm.cached_tokens is not None and arm.prompt_tokens is not None and arm.cached_tokens > arm.prompt_tokens:
        yield f"cached_tokens {arm.cached_tokens} of {arm.prompt_tokens} prompt tokens"
    for name in _SCORES:
        if (score := getattr(arm, name)) is not None and score > _ROUNDING:
            yield f"{name} is {score:g}, above 1"
    if arm.answer_right is not None and arm.answer_score is None:
        yield f"answer_right is {arm.answer_right} without an answer_score"
    elif arm.answer_right and not arm.answer_score:
        yield "answer_right with an answer_score of 0"
    if arm.answer_right and arm.answer_stale:
        yield "the answer is right and that of an earlier revision"


def _contamination_failures(row: RequestRow, block_size: int | None) -> Iterator[str]:
    """``contaminated`` must follow from the cached tokens: it must neither hide a bad pair nor drop a good one."""
    cold = row.cold
    if cold is None or block_size is None or cold.status != "ok":
        return
    found = None if cold.cached_tokens is None else cold.cached_tokens > block_size
    if cold.contaminated is not found:
        yield (
            f"cold: contaminated is {cold.contaminated}, but cached_tokens is {cold.cached_tokens} at a block size of "
            f"{block_size}: {'the cold arm was not cold' if found else 'the flag does not follow from the tokens'}"
        )


def _pair_failures(row: RequestRow) -> Iterator[str]:
    cold, warm, pair = row.cold, row.warm, row.pair
    if cold is None or warm is None:
        if pair is not None:
            yield "pair: an arm is missing"
        return
    counts = {arm.prompt_tokens for arm in (cold, warm) if arm.prompt_tokens is not None}
    if len(counts) > 1:
        yield f"pair: {cold.prompt_tokens} cold, {warm.prompt_tokens} warm prompt tokens: not the same prompt"
    if pair is None:
        return
    if (cold.status != "ok" or warm.status != "ok") and _compared(pair):
        yield "pair: answers were compared although an arm failed"
    if (pair.mean_kl is None) is not (pair.worst_kl is None):
        yield "pair: only one of mean and worst KL is present"
    elif pair.mean_kl is not None and pair.worst_kl is not None and pair.mean_kl > pair.worst_kl * _ROUNDING:
        yield f"pair: mean KL {pair.mean_kl:g} above the worst {pair.worst_kl:g}"
    if pair.mean_kl is not None and not pair.compared_positions:
        yield "pair: KL without compared positions"


def _compared(pair: PairRow) -> bool:
    return pair.mean_kl is not None or pair.answer_flip is not None


def _confirmation_failures(row: RequestRow, block_size: int | None) -> Iterator[str]:
    reused = None if row.backend is None else row.backend.reused_tokens
    blocks = row.backend_confirmed_blocks
    if blocks and not reused:
        backend = "there is no backend row" if row.backend is None else f"the backend row has {reused!r} reused tokens"
        yield f"backend_confirmed_blocks is {blocks}, but {backend}"
    elif reused is not None and block_size is not None and blocks != reused // block_size:
        yield f"backend_confirmed_blocks is {blocks!r}, but {reused} reused tokens are {reused // block_size} blocks"


def _backend_failures(backend: BackendRow, row: RequestRow) -> Iterator[str]:
    if row.warm is None:
        yield "there is no warm request"
        return
    if item_of(backend.engine_request_id, {row.item_id}) is None:
        yield f"engine_request_id {backend.engine_request_id!r} belongs to another request"
    reused = backend.reused_tokens or 0
    if bool(reused) is not (backend.outcome == Outcome.BACKEND_MATERIALIZED_REUSE):
        yield f"outcome is {backend.outcome!r} with {backend.reused_tokens!r} reused tokens"
    if reused and backend.decline_reason is not None:
        yield f"declined ({backend.decline_reason}), but has reused tokens"
    spans = {
        "found_tokens": backend.found_tokens or 0,
        "boundary + advertised_tokens": (backend.boundary or 0) + (backend.advertised_tokens or 0),
        "reused_tokens + computed_tokens": reused + (backend.computed_tokens or 0),
        "propagated_tokens": backend.propagated_tokens or 0,
    }
    for name, tokens in spans.items():
        if tokens > row.prompt_tokens:
            yield f"{name} {tokens} of {row.prompt_tokens} tokens"
    if backend.advertised_tokens is not None and reused > backend.advertised_tokens:
        yield f"reused {reused} of {backend.advertised_tokens} advertised tokens"
    if row.warm.cached_tokens is not None and reused > row.warm.cached_tokens:
        yield f"reused {reused} tokens, but the server reported {row.warm.cached_tokens} cached tokens to the client"
