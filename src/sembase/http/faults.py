"""Errors in the shape OpenAI clients read: ``{"error": {"message", "type", "param", "code"}}``; no request text.

Here are those that the server itself answers; the apps have their own.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One reply of our own that is an error. ``closes``: the server must not read what the client still sends."""

    status: int
    type: str
    code: str
    message: str
    retry_after_s: int | None = None
    closes: bool = False

    def body(self) -> bytes:
        error = {"message": self.message, "type": self.type, "param": None, "code": self.code}
        return json.dumps({"error": error}).encode()


BUSY: Final = Fault(503, "server_error", "overloaded", "Too many requests are in flight; retry later.", 1)
BAD_REQUEST: Final = Fault(400, "invalid_request_error", "bad_request", "The request is not valid HTTP.")
HEAD_TOO_LARGE: Final = Fault(
    431, "invalid_request_error", "head_too_large", "The request head is too large, or has too many headers."
)
INTERNAL: Final = Fault(500, "server_error", "internal_error", "Internal error; see the server's log.")


async def send_fault(send: Send, fault: Fault, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    await send_json(send, fault.status, fault.body(), _more_headers(fault) + headers)


async def send_json(send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    length = (b"content-length", str(len(body)).encode())
    named = [(b"content-type", b"application/json"), length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body})


def _more_headers(fault: Fault) -> tuple[tuple[bytes, bytes], ...]:
    named: list[tuple[bytes, bytes]] = []
    if fault.closes:
        named.append((b"connection", b"close"))
    if fault.retry_after_s is not None:
        named.append((b"retry-after", str(fault.retry_after_s).encode()))
    return tuple(named)
