"""What is asked of a server and what came back, as values; what a server of any kind must be able to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from sembase.segment import Message

OK: Final = "ok"


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """``kind`` says what the plan wanted of it (fresh, so much of it shared); it goes into the record's metadata."""

    request_id: str
    messages: tuple[Message, ...]
    max_tokens: int
    session_id: str | None = None
    tenant_id: str | None = None
    kind: str = "given"


@dataclass(frozen=True, slots=True)
class Served:
    """Times count from sending. ``None`` says that the server or the clock did not tell, never zero.

    ``status`` is ``ok`` or why there is no complete answer; ``ttft_ms`` is the first chunk that bears a token.
    """

    status: str
    ttft_ms: float | None = None
    total_ms: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    model_name: str | None = None


class Server(Protocol):
    """A mock, an HTTP server or anybody's handler. Faults are statuses of ``Served``, not exceptions."""

    async def ask(self, request: PromptRequest) -> Served: ...
