"""One request and its reply as the proxy saw them; passed from the event loop to the writer's thread."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from semgate.http.headers import Headers
from semgate.http.reply_scan import ReplyScan

ExchangeOutcome = Literal["ok", "http_error", "stream_error", "client_left", "upstream_fault"]


@dataclass(slots=True)
class Exchange:
    """Holds the request's body until the record is made. Times are of one monotonic clock, in seconds."""

    path: str
    headers: Headers
    body: bytes
    tenant: str
    arrived_unix_ms: float
    asked_s: float
    _: KW_ONLY
    outcome: ExchangeOutcome = "upstream_fault"
    status: int | None = None
    first_byte_s: float | None = None
    ended_s: float = 0.0
    fault: str | None = None
    scan: ReplyScan | None = None

    @property
    def held_bytes(self) -> int:
        return len(self.body) + 2048  # headers, times and the tail of the reply
