"""The arms of one item -> its row of the result. All that is derived (scores, divergence) is made here."""

from __future__ import annotations

from sembench.live.arms import ArmResult, arm_row
from sembench.live.divergence import diverge
from sembench.live.flips import is_flipped
from sembench.live.options import LiveOptions
from sembench.live.prompt_size import PromptSizes
from sembench.live.route import Route, route_of
from sembench.live.scores import Scores, is_kept, is_right, score, usable
from sembench.manifest import WorkloadItem
from sembench.metrics.rows import BackendRow, PairRow, RequestRow


def item_row(
    item: WorkloadItem,
    cold: ArmResult | None,
    warm: ArmResult | None,
    *,
    warm_first: bool,
    options: LiveOptions,
    sizes: PromptSizes,
) -> RequestRow:
    size = sizes.of(item, _served_tokens(cold, warm))
    cold_scores = _scores(cold, item.answers)
    warm_scores = _scores(warm, usable(item.answers) or _references_from(cold))
    judged = warm if warm is not None else cold
    route = route_of(judged.reply.headers) if judged is not None and judged.reply is not None else Route()
    backend = warm.backend if warm is not None else None
    quality = _passes(item, warm_scores if warm is not None else cold_scores, options.quality_threshold)
    exact = size.exact
    return RequestRow(
        item_id=item.item_id,
        dataset=item.dataset,
        source_id=item.source_id,
        transform=item.transform,
        negative_control=item.negative_control,
        tenant=item.tenant,
        stream_id=item.stream_id if item.is_stream else None,
        prompt_tokens=size.prompt_tokens,
        total_blocks=size.total_blocks,
        exact_hit_blocks=exact.hit_blocks if exact is not None else None,
        exact_prefix_blocks=exact.prefix_blocks if exact is not None else None,
        exact_prefix_tokens=size.exact_prefix_tokens(options.block_size),
        any_position_tokens=exact.any_position_tokens if exact is not None else None,
        backend_confirmed_blocks=confirmed_blocks(backend, options.block_size),
        route_outcome=route.outcome,
        route_worker=route.worker,
        route_similarity=route.similarity,
        quality_pass=quality,
        cold=arm_row(cold, cold_scores, options.block_size) if cold is not None else None,
        warm=arm_row(warm, warm_scores, None) if warm is not None else None,
        pair=_pair(item, cold, warm, cold_scores, quality, warm_first, options.quality_threshold),
        backend=backend,
    )


def confirmed_blocks(backend: BackendRow | None, block_size: int) -> int | None:
    """0 when the backend said that it reused nothing, None when it said nothing."""
    if backend is None or backend.reused_tokens is None:
        return None
    return backend.reused_tokens // block_size


def _served_tokens(*arms: ArmResult | None) -> int | None:
    counts = (arm.reply.prompt_tokens for arm in arms if arm is not None and arm.reply is not None)
    return max((count for count in counts if count is not None), default=None)


def _references_from(cold: ArmResult | None) -> tuple[str, ...]:
    return (cold.text,) if cold is not None and cold.is_ok else ()


def _scores(arm: ArmResult | None, references: tuple[str, ...]) -> Scores | None:
    return score(arm.text, references) if arm is not None and arm.is_ok else None


def _passes(item: WorkloadItem, scores: Scores | None, threshold: float) -> bool | None:
    if scores is None:
        return None
    return is_right(scores, item.answers, threshold) if usable(item.answers) else is_kept(scores, threshold)


def _pair(
    item: WorkloadItem,
    cold: ArmResult | None,
    warm: ArmResult | None,
    cold_scores: Scores | None,
    warm_passes: bool | None,
    warm_first: bool,
    threshold: float,
) -> PairRow | None:
    if cold is None or warm is None:
        return None
    if not (cold.is_ok and warm.is_ok and cold.reply is not None and warm.reply is not None):
        return PairRow(warm_first)
    found = diverge(cold.reply.logprobs, warm.reply.logprobs)
    kl = found.kl if found is not None else ()
    return PairRow(
        warm_first=warm_first,
        mean_kl=sum(kl) / len(kl) if kl else None,
        worst_kl=max(kl) if kl else None,
        compared_positions=len(kl) if kl else None,
        agreed_tokens=found.agreed_tokens if found is not None else None,
        answer_flip=_flipped(item, cold, warm, cold_scores, warm_passes, threshold),
    )


def _flipped(
    item: WorkloadItem,
    cold: ArmResult,
    warm: ArmResult,
    cold_scores: Scores | None,
    warm_passes: bool | None,
    threshold: float,
) -> bool:
    known = usable(item.answers)
    cold_right = is_right(cold_scores, item.answers, threshold) if known and cold_scores is not None else None
    return is_flipped(cold.text, warm.text, cold_right, warm_passes if known else None, threshold)
