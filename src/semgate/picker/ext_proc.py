"""The Endpoint Picker Protocol: Envoy's messages about one HTTP request in, replies with the picked endpoint out.

The data plane's configuration decides what is sent. Full duplex (the standard) sends both bodies through here and takes
them back; with buffered request bodies and no response bodies a request costs four messages, whatever its length.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import grpc

from semgate.http.faults import Fault
from semgate.http.headers import find
from semgate.picker import messages
from semgate.picker.messages import Message
from semgate.picker.pick import Picker, PickJob

HEADERS_SECONDS: Final = 5.0  # from the start of a stream


class ExternalProcessor:
    """The gRPC service of one picker. ``streams`` are open; at ``max_connections`` further ones are refused."""

    name: Final = "envoy.service.ext_proc.v3.ExternalProcessor"

    def __init__(self, picker: Picker) -> None:
        self._picker = picker
        self.streams = 0

    def readiness(self) -> dict[str, str]:
        """The gateway's; also not ready while no further stream is admitted."""
        if self._is_full():
            return {"status": "not ready", "reason": "the limit of open streams is reached (--max-connections)"}
        return self._picker.gateway.readiness()

    def handler(self) -> Any:
        process = grpc.stream_stream_rpc_method_handler(
            self.process, messages.ProcessingRequest.FromString, messages.ProcessingResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(self.name, {"Process": process})

    async def process(self, requests: AsyncIterator[Message], context: Any) -> AsyncIterator[Message]:
        if self._is_full():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many open streams")
        stream = RequestStream(self._picker)
        self.streams += 1
        try:
            message = await _first(requests, context)
            while message is not None:
                for reply in await stream.take(message):
                    yield reply
                    if reply.HasField("immediate_response"):
                        return
                message = await anext(requests, None)
        finally:
            self.streams -= 1
            stream.close()

    def _is_full(self) -> bool:
        return self.streams >= self._picker.gateway.settings.max_connections


async def _first(requests: AsyncIterator[Message], context: Any) -> Message | None:
    """The request's headers; None if the data plane has closed the stream. Without them nothing is inspected."""
    try:
        async with asyncio.timeout(HEADERS_SECONDS):
            message = await anext(requests, None)
    except TimeoutError:
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no request headers arrived in time")
    if message is not None and message.WhichOneof("request") != "request_headers":
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a stream begins with request headers")
    return message


class RequestStream:
    """The messages of one HTTP request. ``close`` when the data plane has closed its stream."""

    def __init__(self, picker: Picker) -> None:
        self._picker = picker
        self._job: PickJob | None = None
        self._request_mode = messages.FULL_DUPLEX
        self._response_mode = messages.FULL_DUPLEX
        self._subset: tuple[str, ...] | None = None
        self._has_ended = False
        self._has_answer = False

    async def take(self, message: Message) -> Iterable[Message]:
        kind = message.WhichOneof("request")
        if kind == "request_headers":
            return await self._request_headers(message)
        if kind == "request_body":
            return await self._request_body(message.request_body)
        if kind == "request_trailers":
            return await self._request_trailers()
        if kind == "response_headers":
            return self._response_headers(message)
        if kind == "response_body":
            return self._response_body(message.response_body)
        self._has_ended = True
        return (messages.unchanged("response_trailers"),)

    def close(self) -> None:
        """Without bodies of answers their end is not seen; the stream stays open until then (trailers are sent)."""
        if self._job is not None:
            sees_end = self._response_mode != messages.NONE
            self._job.close(is_complete=self._has_ended or (self._has_answer and not sees_end))

    async def _request_headers(self, message: Message) -> Iterable[Message]:
        self._request_mode, self._response_mode = messages.body_modes(message)
        self._subset = messages.subset_of(message)
        opened = self._picker.open(messages.head_of(messages.headers_of(message.request_headers)))
        if isinstance(opened, Fault):
            return (messages.refusal(opened),)
        self._job = opened
        if message.request_headers.end_of_stream or self._request_mode in (messages.NONE, messages.STREAMED):
            return await self._placed(opened)
        if self._request_mode == messages.FULL_DUPLEX:
            return ()  # the destination is a header: it is answered when the body has been read
        return (messages.request_headers(),)

    async def _request_body(self, part: Message) -> Iterable[Message]:
        job = self._job
        if job is None or job.is_placed:
            return (messages.unchanged("request_body"),)
        if (fault := job.take_body(part.body)) is not None:
            return (messages.refusal(fault),)
        if self._request_mode == messages.FULL_DUPLEX and not part.end_of_stream:
            return ()
        return await self._placed(job, has_body=True)

    async def _request_trailers(self) -> Iterable[Message]:
        passed = messages.unchanged("request_trailers")
        if self._job is None or self._job.is_placed:
            return (passed,)
        replies = list(await self._placed(self._job, has_body=True, is_last=False))
        return replies if replies[-1].HasField("immediate_response") else (*replies, passed)

    async def _placed(self, job: PickJob, *, has_body: bool = False, is_last: bool = True) -> Iterable[Message]:
        if (fault := await job.place(self._subset)) is not None:
            return (messages.refusal(fault),)
        set_headers, removed = job.header_changes()
        mutation, metadata = messages.picked(set_headers, removed), messages.picked_metadata(set_headers)
        body, is_changed = job.body, job.is_changed
        job.drop_body()
        if not has_body:
            return (messages.request_headers(mutation, metadata),)
        if self._request_mode == messages.FULL_DUPLEX:
            head = messages.request_headers(mutation, metadata)
            return (head, *messages.streamed_request(body, is_last=is_last))
        if is_changed:  # Envoy refuses a body of another length than its header says
            set_headers = (*set_headers, (b"content-length", str(len(body)).encode()))
            mutation = messages.picked(set_headers, removed)
        return (messages.buffered_body(mutation, metadata, body if is_changed else None),)

    def _response_headers(self, message: Message) -> Iterable[Message]:
        headers = messages.headers_of(message.response_headers)
        self._has_answer = True
        self._has_ended = message.response_headers.end_of_stream
        if self._job is not None:
            self._job.answer_began(
                int(find(headers, b":status") or 200),
                is_events=(find(headers, b"content-type") or b"").startswith(b"text/event-stream"),
                sees_body=self._response_mode != messages.NONE and not self._has_ended,
                served=messages.served_of(message),
            )
        return (messages.response_headers(),)

    def _response_body(self, part: Message) -> Iterable[Message]:
        self._has_ended = part.end_of_stream
        if self._job is not None:
            self._job.answer_piece(part.body)
            if self._has_ended:
                self._job.close(is_complete=True)
        if self._response_mode != messages.FULL_DUPLEX:
            return (messages.unchanged("response_body"),)
        return (messages.response_body(part.body, is_end=part.end_of_stream),)
