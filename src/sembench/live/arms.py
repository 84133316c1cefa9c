"""One arm of an item: the reply of its recipient, or why there is none, and what the engine said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sembench.http.reply import CONNECTION, OK, LiveReply
from sembench.live.scores import Scores
from sembench.metrics.rows import ArmRow, BackendRow

RESET_FAILED: Final = "reset_failed"


@dataclass(frozen=True, slots=True)
class ArmResult:
    """``reply`` is None when the recipient was never asked: an arm without its preparation measures something else."""

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


def arm_row(arm: ArmResult, scores: Scores | None, cold_block_size: int | None) -> ArmRow:
    """``cold_block_size`` is given for cold arms: more cached tokens than one block mean that it was not cold."""
    reply = arm.reply
    if reply is None:
        return ArmRow(arm.request_id, arm.status)
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
    )


def _writable(text: str) -> str:
    """Half of a surrogate pair, which a server may send, cannot be written to any file."""
    return text.encode("utf-8", "replace").decode("utf-8")
