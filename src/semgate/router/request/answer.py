"""A replica's answer on its way to the client: its headers, what is held back until it is safe to send, how it ends.

The head is held until the first body bytes arrive (engines send it before they compute), and an answer that is not a
stream until it is complete (at most ``HELD_BYTES``): a replica that dies before that costs the client nothing but
time. After that nothing is held: chunks are sent as they arrive. Headers of the answer say where a request went and
why, never that KV was reused.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from sembase.http.client import HttpClient, HttpFault, StreamedReply
from semgate.http.departure import ClientWatch
from semgate.http.faults import Fault, Send, event_of
from semgate.http.first_byte import shifted
from semgate.http.headers import Headers, find, for_client
from semgate.http.held_body import HeldBody
from semgate.http.reply_scan import ReplyScan
from semgate.placement.decision import Decision
from semgate.router.request.placement import Placement
from semgate.router.request.trace import RequestTrace

REQUEST_ID: Final = b"x-request-id"
PATH: Final = b"x-semblend-routing-path"
WORKER: Final = b"x-semblend-routing-worker"
SIMILARITY: Final = b"x-semblend-routing-similarity"
REPLICA: Final = b"x-semantickv-replica"
_OURS: Final = frozenset({REQUEST_ID, PATH, WORKER, SIMILARITY, REPLICA})
_SAFE_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
HELD_BYTES: Final = 1 << 20
LAST_EVENT_SECONDS: Final = 0.5
CUT: Final = Fault(502, "server_error", "replica_lost", "The model server was lost while answering; retry the request.")
SHUTTING_DOWN: Final = Fault(503, "server_error", "shutting_down", "The gateway is shutting down; retry later.", 1)


@dataclass(frozen=True, slots=True)
class Inbound:
    """A request as the replica may see it. ``target`` is the path as the client wrote it, with its query; ``body`` is
    released once an answer has begun."""

    method: str
    path: str
    target: str
    headers: Headers
    body: HeldBody


@dataclass(frozen=True, slots=True)
class Client:
    """The client's connection: ``watch`` cancels the request when the client leaves."""

    send: Send
    watch: ClientWatch


@dataclass(frozen=True, slots=True)
class Answer:
    """Nothing of it has been passed on. ``is_whole``: ``head`` is all of the body."""

    reply: StreamedReply
    head: bytes
    rest: AsyncIterator[bytes]
    is_whole: bool
    is_events: bool


def request_id_of(headers: Headers) -> str:
    """The client's own id if it is a plain word, so that it cannot inject text into logs; otherwise a new one."""
    given = find(headers, REQUEST_ID)
    if given is not None and _SAFE_ID.fullmatch(given):
        return given.decode("ascii")
    return secrets.token_hex(16)


def routing_headers(request_id: str, decision: Decision | None) -> Headers:
    """Path and similarity are left out if other tenants' traffic decided: they would reveal what others have sent."""
    named: list[tuple[bytes, bytes]] = [(REQUEST_ID, request_id.encode())]
    if decision is not None:
        replica = decision.replica.encode()
        named += [(WORKER, replica), (REPLICA, replica)]
        if decision.own_evidence:
            named.append((PATH, decision.path.encode()))
        if decision.own_evidence and decision.similarity is not None:
            named.append((SIMILARITY, f"{decision.similarity:.4f}".encode()))
    return tuple(named)


def answer_headers(upstream: Headers, ours: Headers) -> list[tuple[bytes, bytes]]:
    """A replica cannot set our headers: those it sends are dropped."""
    return [*(pair for pair in for_client(upstream) if pair[0] not in _OURS), *ours]


async def open_answer(upstream: HttpClient, origin: str, inbound: Inbound) -> Answer:
    """Raises `HttpFault` as long as another replica could answer instead."""
    reply = await upstream.send(origin, inbound.method, inbound.target, inbound.headers, inbound.body.data)
    try:
        is_events = (find(reply.headers, b"content-type") or b"").startswith(b"text/event-stream")
        rest = reply.chunks()
        first = await anext(rest, None)
        if first is None or is_events:
            return Answer(reply, first or b"", rest, first is None, is_events)
        head, is_whole = await _read_held(first, rest)
        return Answer(reply, head, rest, is_whole, is_events)
    except BaseException:
        await reply.abort()
        raise


async def pass_on(
    answer: Answer, placement: Placement, client: Client, trace: RequestTrace, min_first_byte_s: float = 0.0
) -> None:
    async with shifted(answer.rest, trace.started_s + min_first_byte_s - time.perf_counter()) as rest:
        await _pass_on(replace(answer, rest=rest), placement, client, trace)


async def _pass_on(answer: Answer, placement: Placement, client: Client, trace: RequestTrace) -> None:
    reply = answer.reply
    headers = answer_headers(reply.headers, routing_headers(trace.request_id, placement.decision))
    trace.status, trace.first_byte_s = reply.status, time.perf_counter()
    trace.answer_bytes = len(answer.head)
    placement.first_byte(reply.status)
    scan = ReplyScan(is_event_stream=answer.is_events)
    scan.feed(answer.head, trace.first_byte_s)
    await client.send({"type": "http.response.start", "status": reply.status, "headers": headers})
    fault = None
    if answer.is_whole:
        client.watch.stop()
        await client.send({"type": "http.response.body", "body": answer.head})
    else:
        fault = await _stream(answer, client, trace, scan)
    trace.facts = scan.facts()
    if fault is None:
        trace.outcome = "complete"
        placement.end("answered", trace.facts)
    else:
        trace.outcome = "cut"
        trace.attempts[-1] = replace(trace.attempts[-1], fault=f"cut_{fault.kind}")
        placement.end("unknown" if fault.kind == "timeout" else "suspect")


async def _stream(answer: Answer, client: Client, trace: RequestTrace, scan: ReplyScan) -> HttpFault | None:
    """The fault that cut the answer. Its body then stays unfinished, so that the server closes the connection."""
    piece = answer.head
    try:
        await client.send({"type": "http.response.body", "body": piece, "more_body": True})
        async for piece in answer.rest:
            scan.feed(piece, time.perf_counter())
            trace.answer_bytes += len(piece)
            await client.send({"type": "http.response.body", "body": piece, "more_body": True})
        if answer.is_events and _may_be_cut(answer.reply.headers, piece):
            raise HttpFault("reset", sent=True, detail="closed without its last event")
        client.watch.stop()
        await client.send({"type": "http.response.body", "body": b""})
    except HttpFault as fault:
        if answer.is_events:
            await _end_events(client.send, CUT, piece)
        return fault
    except asyncio.CancelledError:
        if answer.is_events:  # reaches the client at the shutdown's time limit, not if the client itself left
            with suppress(TimeoutError):  # a client that does not read must not delay the shutdown
                async with asyncio.timeout(LAST_EVENT_SECONDS):
                    await _end_events(client.send, SHUTTING_DOWN, piece)
        raise
    return None


async def _read_held(first: bytes, rest: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    """The complete body if it is small enough, so that another replica can still answer if this one dies."""
    pieces, size_bytes = [first], len(first)
    while size_bytes < HELD_BYTES:
        piece = await anext(rest, None)
        if piece is None:
            return b"".join(pieces), True
        pieces.append(piece)
        size_bytes += len(piece)
    return b"".join(pieces), False


def _may_be_cut(headers: Headers, last: bytes) -> bool:
    """A stream that ends by closing looks the same whether cut or complete, except for its last event."""
    framed = find(headers, b"content-length") or find(headers, b"transfer-encoding")
    return framed is None and b"[DONE]" not in last[-64:]


async def _end_events(send: Send, fault: Fault, last: bytes) -> None:
    """Sends the reason as an event of its own, on a new line even if the last event was cut."""
    separator = b"" if last.endswith((b"\n\n", b"\r\n\r\n")) else b"\n\n"
    await send({"type": "http.response.body", "body": separator + event_of(fault), "more_body": True})
