"""The errors of the gateway, in the shape of `sembase.http.faults`: of its own, and for what a model server did."""

from __future__ import annotations

from typing import Final

from sembase.http.faults import BUSY, INTERNAL, Fault, Send, send_fault, send_json
from sembase.http.reply import HttpFault

__all__ = [
    "BODIES_FULL",
    "BODY_TIMEOUT",
    "BUSY",
    "INTERNAL",
    "NOT_FOUND",
    "NOT_JSON",
    "NO_METHOD",
    "NO_UPGRADE",
    "TOO_LARGE",
    "TWO_TENANTS",
    "Fault",
    "RequestRefused",
    "Send",
    "event_of",
    "fault_of",
    "send_fault",
    "send_json",
]


class RequestRefused(Exception):  # noqa: N818  (an event of the client, not an error of ours)
    """The client gets ``fault``; nothing is forwarded."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.code)
        self.fault = fault


TOO_LARGE: Final = Fault(
    413, "invalid_request_error", "request_too_large", "The request body is larger than allowed.", closes=True
)
BODY_TIMEOUT: Final = Fault(
    408, "invalid_request_error", "request_timeout", "The request body did not arrive in time.", closes=True
)
NOT_FOUND: Final = Fault(404, "invalid_request_error", "not_found", "This path does not exist.")
NO_METHOD: Final = Fault(405, "invalid_request_error", "method_not_allowed", "This path does not support that method.")
NO_UPGRADE: Final = Fault(400, "invalid_request_error", "no_upgrade", "No other protocol is offered here.", closes=True)
TWO_TENANTS: Final = Fault(400, "invalid_request_error", "ambiguous_tenant", "Send X-Tenant-ID only once.")
NOT_JSON: Final = Fault(400, "invalid_request_error", "not_json", "The body must be a JSON object in UTF-8.")
BODIES_FULL: Final = Fault(
    *(503, "server_error", "overloaded", "The gateway has no memory for another body; retry later.", 1), closes=True
)
_OF_UPSTREAM: Final = {
    "connect": Fault(502, "server_error", "upstream_unreachable", "The model server cannot be reached.", 1),
    "no_connection": Fault(503, "server_error", "overloaded", "All connections to the model server are busy.", 1),
    "timeout": Fault(504, "server_error", "upstream_timeout", "The model server did not answer in time."),
    "reset": Fault(502, "server_error", "upstream_reset", "The model server closed the connection."),
    "protocol": Fault(502, "server_error", "upstream_protocol", "The model server's reply is not valid HTTP."),
}


def field_not_allowed(message: str) -> Fault:
    return Fault(400, "invalid_request_error", "field_not_allowed", message)


def fault_of(error: HttpFault) -> Fault:
    return _OF_UPSTREAM[error.kind]


def event_of(fault: Fault) -> bytes:
    """The fault as an event of a stream that has already begun, where no status can be sent any more."""
    return b"data: " + fault.body() + b"\n\n"
