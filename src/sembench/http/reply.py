"""What the client saw of one request: status, times since sending, counts, text, logprobs, backend evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

OK: Final = "ok"
TIMEOUT: Final = "timeout"
CONNECTION: Final = "connection"
BROKEN_STREAM: Final = "broken_stream"
CANCELLED: Final = "cancelled"


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """One answered token and its alternatives, as the server names tokens."""

    token: str
    logprob: float
    top: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiveReply:
    """``status`` is ``ok``, ``http_<code>``, ``timeout``, ``connection``, ``broken_stream`` or ``cancelled``.

    Times are milliseconds since just before sending; ``chunk_ms`` has one entry per token-bearing chunk, the first is
    the TTFT. ``sent_at`` is the moment of sending on the clock of ``time.perf_counter``; until ``wire_ms`` the client
    itself was busy, or connecting. ``headers`` holds ``x-*`` only, in lower case. ``cached_tokens`` is None where the
    server does not report it, which is not 0.
    """

    request_id: str
    status: str
    detail: str = ""
    ttft_ms: float | None = None
    total_ms: float | None = None
    chunk_ms: tuple[float, ...] = ()
    text: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    logprobs: tuple[TokenLogprobs, ...] = ()
    backend: Mapping[str, Any] | None = None
    sent_at: float | None = None
    wire_ms: float | None = None
