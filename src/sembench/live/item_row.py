"""The arms of one item -> its row of the result: the replies, prompt sizes, scores and divergence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sembase.tokenizer import Tokenizer, open_tokenizer
from sembench.http.reply import CONNECTION, OK, LiveReply
from sembench.live.divergence import diverge
from sembench.live.engine import Route, route_of
from sembench.live.options import LiveOptions
from sembench.manifest import WorkloadItem
from sembench.metrics.rows import ArmRow, BackendRow, PairRow, RequestRow
from sembench.replay.pool import DonorPool, ExactEvidence
from sembench.scoring import Mark, mark
from sembench.scoring.base import task_of
from sembench.scoring.words import Scores, is_flipped, is_kept, score, usable

RESET_FAILED: Final = "reset_failed"


@dataclass(frozen=True, slots=True)
class ArmResult:
    """``reply`` is None when the recipient was not sent because preparing the arm failed."""

    request_id: str
    status: str
    reply: LiveReply | None = None
    backend: BackendRow | None = None
    lost_connection: bool = False

    @property
    def is_ok(self) -> bool:
        return self.status == OK and self.reply is not None

    @property
    def text(self) -> str:
        return self.reply.text if self.reply is not None else ""


def donor_failed(request_id: str, reply: LiveReply) -> ArmResult:
    """The status names what happened to the donor: ``donor_timeout``, ``donor_http_400``."""
    return ArmResult(request_id, f"donor_{reply.status}", lost_connection=reply.status == CONNECTION)


def answered(reply: LiveReply, backend: BackendRow | None = None) -> ArmResult:
    return ArmResult(reply.request_id, reply.status, reply, backend, reply.status == CONNECTION)


def arm_row(arm: ArmResult, scores: Scores | None, cold_block_size: int | None, marked: Mark | None = None) -> ArmRow:
    """``cold_block_size`` is given for cold arms: one with more cached tokens than a block was not cold."""
    reply = arm.reply
    if reply is None:
        return ArmRow(request_id=arm.request_id, status=arm.status)
    contaminated = None
    if cold_block_size is not None and reply.cached_tokens is not None:
        contaminated = reply.cached_tokens > cold_block_size
    return ArmRow(
        request_id=arm.request_id,
        status=arm.status,
        ttft_ms=reply.ttft_ms,
        total_ms=reply.total_ms,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cached_tokens=reply.cached_tokens,
        contaminated=contaminated,
        text=_writable(reply.text) if arm.is_ok else None,
        token_recall=scores.token_recall if scores is not None else None,
        f1=scores.f1 if scores is not None else None,
        rouge_l=scores.rouge_l if scores is not None else None,
        exact_match=scores.exact_match if scores is not None else None,
        answer_read=_writable(marked.read) if marked is not None and marked.read is not None else None,
        answer_score=marked.value if marked is not None else None,
        answer_right=marked.right if marked is not None else None,
        answer_stale=marked.stale if marked is not None else None,
    )


def _writable(text: str) -> str:
    """Replaces lone surrogates: a server may send them, but they cannot be encoded."""
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class PromptSize:
    """Prompt length and exact-cache coverage. ``exact`` is None without a tokenizer and for streams."""

    prompt_tokens: int
    total_blocks: int
    exact: ExactEvidence | None = None

    def exact_prefix_tokens(self, block_size: int) -> int | None:
        """At most all tokens but the last: an engine always computes that one."""
        if self.exact is None:
            return None
        return min(self.exact.prefix_blocks * block_size, max(0, self.prompt_tokens - 1))


class PromptSizes:
    """Prompt sizes by the server's count and, if one is given, a tokenizer's."""

    def __init__(self, tokenizer: str | None, block_size: int) -> None:
        self._block_size = block_size
        self._tokenizer: Tokenizer | None = open_tokenizer(tokenizer) if tokenizer is not None else None

    def describe(self) -> dict[str, Any] | None:
        """The tokenizer, for the result; None if only the server's counts are used."""
        if self._tokenizer is None:
            return None
        return {
            "name": self._tokenizer.name,
            "digest": self._tokenizer.digest,
            "is_model_tokenizer": self._tokenizer.is_model_tokenizer,
        }

    def of(self, item: WorkloadItem, served_tokens: int | None) -> PromptSize:
        """Uses the larger of both counts: the server's includes the tokens of a chat template."""
        if self._tokenizer is None:
            tokens = served_tokens or 0
            return PromptSize(tokens, tokens // self._block_size)
        ids = self._tokenizer.encode(item.recipient_prompt).ids
        tokens = max(len(ids), served_tokens or 0)
        if item.is_stream:
            return PromptSize(tokens, tokens // self._block_size)
        pool = DonorPool(self._block_size)
        for donor in item.donor_prompts:
            if item.tenant_of_donor(donor) == item.tenant:
                pool.add(self._tokenizer.encode(donor.text).ids)
        return PromptSize(tokens, tokens // self._block_size, pool.evidence(ids))


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
    cold_mark, warm_mark = (_mark(arm, item, options.quality_threshold) for arm in (cold, warm))
    judged = warm if warm is not None else cold
    route = route_of(judged.reply.headers) if judged is not None and judged.reply is not None else Route()
    backend = warm.backend if warm is not None else None
    quality = _passes(
        warm_mark if warm is not None else cold_mark,
        warm_scores if warm is not None else cold_scores,
        options.quality_threshold,
    )
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
        cold=arm_row(cold, cold_scores, options.block_size, cold_mark) if cold is not None else None,
        warm=arm_row(warm, warm_scores, None, warm_mark) if warm is not None else None,
        pair=_pair(cold, warm, (cold_mark, warm_mark), warm_first, options.quality_threshold),
        backend=backend,
    )


def confirmed_blocks(backend: BackendRow | None, block_size: int) -> int | None:
    """0 if the backend reported no reuse, None if it reported nothing."""
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


def _mark(arm: ArmResult | None, item: WorkloadItem, threshold: float) -> Mark | None:
    return mark(arm.text, task_of(item.answers, item.metadata, threshold)) if arm is not None and arm.is_ok else None


def _passes(marked: Mark | None, scores: Scores | None, threshold: float) -> bool | None:
    """By the item's own score; without known answers by the cold answer's words."""
    if marked is not None and marked.right is not None:
        return marked.right
    return None if scores is None else is_kept(scores, threshold)


def _pair(
    cold: ArmResult | None,
    warm: ArmResult | None,
    marks: tuple[Mark | None, Mark | None],
    warm_first: bool,
    threshold: float,
) -> PairRow | None:
    if cold is None or warm is None:
        return None
    if not (cold.is_ok and warm.is_ok and cold.reply is not None and warm.reply is not None):
        return PairRow(warm_first=warm_first)
    found = diverge(cold.reply.logprobs, warm.reply.logprobs)
    kl = found.kl if found is not None else ()
    cold_right, warm_right = (marked.right if marked is not None else None for marked in marks)
    return PairRow(
        warm_first=warm_first,
        mean_kl=sum(kl) / len(kl) if kl else None,
        worst_kl=max(kl) if kl else None,
        compared_positions=len(kl) if kl else None,
        agreed_tokens=found.agreed_tokens if found is not None else None,
        answer_flip=is_flipped(cold.text, warm.text, cold_right, warm_right, threshold),
    )
