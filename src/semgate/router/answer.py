"""A replica's answer on its way to the client: what is held back until it is safe, and how it is said that it was cut.

The head is held until the first body bytes are here (engines send it before they compute), an answer that is no stream
until it is whole (at most ``HELD_BYTES``): a replica that dies before costs the client nothing but time. After that
nothing is held: chunks go out as they come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from semgate.http.departure import ClientWatch
from semgate.http.event_stream import ReplyScan
from semgate.http.faults import Fault, Send, event_of
from semgate.http.first_byte import held_until
from semgate.http.headers import Headers, find
from semgate.http.upstream import Upstream, UpstreamFault, UpstreamReply
from semgate.router.inbound import Inbound
from semgate.router.journey import Journey
from semgate.router.response_headers import answer_headers, routing_headers
from semgate.router.seat import Seat

HELD_BYTES: Final = 1 << 20
FAREWELL_SECONDS: Final = 0.5
CUT: Final = Fault(502, "server_error", "replica_lost", "The model server was lost while it answered; ask again.")
SHUTTING_DOWN: Final = Fault(503, "server_error", "shutting_down", "The gateway is shutting down; ask again.", 1)


@dataclass(frozen=True, slots=True)
class Client:
    """The client's end: ``watch`` turns its leaving into a cancellation."""

    send: Send
    watch: ClientWatch


@dataclass(frozen=True, slots=True)
class Answer:
    """Nothing of it has been passed on. ``is_whole``: ``head`` is all of the body."""

    reply: UpstreamReply
    head: bytes
    rest: AsyncIterator[bytes]
    is_whole: bool
    is_events: bool


async def open_answer(upstream: Upstream, origin: str, inbound: Inbound) -> Answer:
    """Raises `UpstreamFault` as long as another replica could be asked instead."""
    reply = await upstream.send(origin, inbound.method, inbound.target, inbound.headers, inbound.body.data)
    try:
        is_events = (find(reply.headers, b"content-type") or b"").startswith(b"text/event-stream")
        rest = reply.chunks()
        first = await anext(rest, None)
        if first is None or is_events:
            return Answer(reply, first or b"", rest, first is None, is_events)
        head, is_whole = await _held(first, rest)
        return Answer(reply, head, rest, is_whole, is_events)
    except BaseException:
        await reply.abort()
        raise


async def pass_on(answer: Answer, seat: Seat, client: Client, journey: Journey, min_first_byte_s: float = 0.0) -> None:
    reply = answer.reply
    if min_first_byte_s:
        await held_until(journey.started_s + min_first_byte_s)
    headers = answer_headers(reply.headers, routing_headers(journey.request_id, seat.decision))
    journey.status, journey.first_byte_s = reply.status, time.perf_counter()
    journey.answer_bytes = len(answer.head)
    seat.first_byte(reply.status)
    scan = ReplyScan(is_event_stream=answer.is_events)
    scan.feed(answer.head, journey.first_byte_s)
    await client.send({"type": "http.response.start", "status": reply.status, "headers": headers})
    fault = None
    if answer.is_whole:
        client.watch.stop()
        await client.send({"type": "http.response.body", "body": answer.head})
    else:
        fault = await _stream(answer, client, journey, scan)
    journey.facts = scan.facts()
    if fault is None:
        journey.outcome = "complete"
        seat.end("answered", journey.facts)
    else:
        journey.outcome = "cut"
        journey.attempts[-1] = replace(journey.attempts[-1], fault=f"cut_{fault.kind}")
        seat.end("failed")


async def _stream(answer: Answer, client: Client, journey: Journey, scan: ReplyScan) -> UpstreamFault | None:
    """The fault that cut the answer. Its body then stays unfinished, so that the server closes the connection."""
    piece = answer.head
    try:
        await client.send({"type": "http.response.body", "body": piece, "more_body": True})
        async for piece in answer.rest:
            scan.feed(piece, time.perf_counter())
            journey.answer_bytes += len(piece)
            await client.send({"type": "http.response.body", "body": piece, "more_body": True})
        if answer.is_events and _may_be_torn(answer.reply.headers, piece):
            raise UpstreamFault("reset", sent=True, detail="closed without its last event")
        client.watch.stop()
        await client.send({"type": "http.response.body", "body": b""})
    except UpstreamFault as fault:
        if answer.is_events:
            await _end_events(client.send, CUT, piece)
        return fault
    except asyncio.CancelledError:
        if answer.is_events:  # at the shutdown's time limit; a client that left hears nothing of it
            with suppress(TimeoutError):  # one that does not read must not hold up the shutdown
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await _end_events(client.send, SHUTTING_DOWN, piece)
        raise
    return None


async def _held(first: bytes, rest: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    """All of a body that is small enough, so that a replica lost in it can still be replaced."""
    pieces, size_bytes = [first], len(first)
    while size_bytes < HELD_BYTES:
        piece = await anext(rest, None)
        if piece is None:
            return b"".join(pieces), True
        pieces.append(piece)
        size_bytes += len(piece)
    return b"".join(pieces), False


def _may_be_torn(headers: Headers, last: bytes) -> bool:
    """A stream that ends by closing looks the same cut or complete; only its last event tells."""
    framed = find(headers, b"content-length") or find(headers, b"transfer-encoding")
    return framed is None and b"[DONE]" not in last[-64:]


async def _end_events(send: Send, fault: Fault, last: bytes) -> None:
    """The reason as an event of its own, on a line of its own even where the last one was torn."""
    border = b"" if last.endswith((b"\n\n", b"\r\n\r\n")) else b"\n\n"
    await send({"type": "http.response.body", "body": border + event_of(fault), "more_body": True})
