"""The unary pick: one HTTP request with the client's method, path, headers and body in; the endpoint as a header out.

For Envoy's ext_authz filter with an HTTP service, and for other gateways. Nothing is reported about answers, so load is
predicted, and neither the price of prefill nor announcements are learnt from this door.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from semgate.http.faults import Fault, Send, send_fault
from semgate.http.headers import Headers, find
from semgate.http.request_body import ClientGone, Receive
from semgate.picker.pick import SUBSET, Picker, PickJob, RequestHead


class UnaryApp:
    """ASGI. The subset of endpoints to choose from comes in the header ``x-gateway-destination-endpoint-subset``, which
    the gateway must set or remove itself."""

    def __init__(self, picker: Picker) -> None:
        self._picker = picker

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers: Headers = tuple(scope["headers"])
        job = self._picker.open(RequestHead(scope["method"], scope["path"], headers))
        if isinstance(job, Fault):
            await send_fault(send, job)
            return
        try:
            fault = await _read(job, receive) or await job.place(_subset(headers))
        except ClientGone:
            job.close(is_complete=False)
            return
        if fault is not None:
            job.close(is_complete=False)
            await send_fault(send, fault)
            return
        set_headers, _ = job.header_changes()
        job.drop_body()
        job.assume_answered()
        named = [*set_headers, (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": named})
        await send({"type": "http.response.body", "body": b""})


async def _read(job: PickJob, receive: Receive) -> Fault | None:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        fault = job.take_body(message.get("body", b""))
        if fault is not None or not message.get("more_body"):
            return fault


def _subset(headers: Headers) -> list[str] | None:
    given = find(headers, SUBSET)
    return None if given is None else [part.strip() for part in given.decode("latin-1").split(",")]
