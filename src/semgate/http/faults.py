"""Errors in the shape OpenAI clients read: ``{"error": {"message", "type", "param", "code"}}``; no request text."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from sembase.http.reply import HttpFault

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One reply of our own that is an error."""

    status: int
    type: str
    code: str
    message: str
    retry_after_s: int | None = None

    def body(self) -> bytes:
        error = {"message": self.message, "type": self.type, "param": None, "code": self.code}
        return json.dumps({"error": error}).encode()


TOO_LARGE: Final = Fault(413, "invalid_request_error", "request_too_large", "The request body is larger than allowed.")
BODY_TIMEOUT: Final = Fault(408, "invalid_request_error", "request_timeout", "The request body did not arrive in time.")
BUSY: Final = Fault(503, "server_error", "overloaded", "Too many requests are in flight; retry later.", 1)
NOT_FOUND: Final = Fault(404, "invalid_request_error", "not_found", "This path does not exist.")
NO_METHOD: Final = Fault(405, "invalid_request_error", "method_not_allowed", "This path does not support that method.")
BAD_REQUEST: Final = Fault(400, "invalid_request_error", "bad_request", "The request is not valid HTTP.")
NO_UPGRADE: Final = Fault(400, "invalid_request_error", "no_upgrade", "No other protocol is offered here.")
HEAD_TOO_LARGE: Final = Fault(
    431, "invalid_request_error", "head_too_large", "The request head is too large, or has too many headers."
)
TWO_TENANTS: Final = Fault(400, "invalid_request_error", "ambiguous_tenant", "Send X-Tenant-ID only once.")
BODIES_FULL: Final = Fault(
    503, "server_error", "overloaded", "The gateway has no memory for another body; retry later.", 1
)
INTERNAL: Final = Fault(500, "server_error", "internal_error", "Internal error in the gateway.")
# The server must not wait for the rest of the body, or must not read on after it.
_BODY_UNREAD: Final = (TOO_LARGE, BODY_TIMEOUT, BODIES_FULL, NO_UPGRADE)
_OF_UPSTREAM: Final = {
    "connect": Fault(502, "server_error", "upstream_unreachable", "The model server cannot be reached.", 1),
    "no_connection": Fault(503, "server_error", "overloaded", "All connections to the model server are busy.", 1),
    "timeout": Fault(504, "server_error", "upstream_timeout", "The model server did not answer in time."),
    "reset": Fault(502, "server_error", "upstream_reset", "The model server closed the connection."),
    "protocol": Fault(502, "server_error", "upstream_protocol", "The model server's reply is not valid HTTP."),
}


def fault_of(error: HttpFault) -> Fault:
    return _OF_UPSTREAM[error.kind]


async def send_fault(send: Send, fault: Fault, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    await send_json(send, fault.status, fault.body(), _more_headers(fault) + headers)


async def send_json(send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    length = (b"content-length", str(len(body)).encode())
    named = [(b"content-type", b"application/json"), length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body})


def event_of(fault: Fault) -> bytes:
    """The fault as an event of a stream that has already begun, where no status can be sent any more."""
    return b"data: " + fault.body() + b"\n\n"


def _more_headers(fault: Fault) -> tuple[tuple[bytes, bytes], ...]:
    named: list[tuple[bytes, bytes]] = []
    if fault in _BODY_UNREAD:
        named.append((b"connection", b"close"))
    if fault.retry_after_s is not None:
        named.append((b"retry-after", str(fault.retry_after_s).encode()))
    return tuple(named)
