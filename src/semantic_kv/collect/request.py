"""A request, its result, and the protocol every server implements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from sembase.segment import Message

OK: Final = "ok"


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """``kind`` is the role of the request in the plan (fresh, or the fraction shared); it is recorded as metadata."""

    request_id: str
    messages: tuple[Message, ...]
    max_tokens: int
    session_id: str | None = None
    tenant_id: str | None = None
    kind: str = "given"


@dataclass(frozen=True, slots=True)
class Served:
    """Times start when the request is sent. ``None`` means that a value is unknown, never zero.

    ``status`` is ``ok`` or the reason why there is no complete answer; ``ttft_ms`` is the first chunk with a token.
    """

    status: str
    ttft_ms: float | None = None
    total_ms: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    model_name: str | None = None


class Server(Protocol):
    """A mock, an HTTP server or a handler of your own. Errors are statuses of ``Served``, not exceptions."""

    async def ask(self, request: PromptRequest) -> Served: ...
