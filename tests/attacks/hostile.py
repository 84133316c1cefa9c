"""Malformed and hostile HTTP requests, each with its right statuses. Only those with 200 may reach an engine."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

BODY: Final = b'{"model": "m", "messages": []}'
LENGTH: Final = b"Content-Length: %d" % len(BODY)
CHUNKED: Final = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
SECONDS: Final = 300.0  # only ends a hang
REFUSED: Final = frozenset({400})


@dataclass(frozen=True, slots=True)
class Hostile:
    """``reaches``: how many requests the engine may see. ``closed``: the server must close the connection."""

    name: str
    wire: bytes
    statuses: frozenset[int] = REFUSED
    reaches: int = 0
    closed: bool = True


def _post(*lines: bytes, body: bytes = BODY, path: bytes = b"/v1/chat/completions", host: bool = True) -> bytes:
    named = (b"Host: gate",) if host else ()
    return b"\r\n".join((b"POST %b HTTP/1.1" % path, *named, *lines)) + b"\r\n\r\n" + body


def _get(path: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: gate\r\n\r\n" % path


def _bad(name: str, wire: bytes) -> Hostile:
    return Hostile(name, wire)


def _unknown(name: str, path: bytes) -> Hostile:
    return Hostile(name, _get(path), frozenset({404}), closed=False)


def _one(name: str, wire: bytes) -> Hostile:
    return Hostile(name, wire, frozenset({200}), reaches=1, closed=False)


TE: Final = b"Transfer-Encoding: chunked"
REQUESTS: Final = (
    _bad("a length and chunks", _post(LENGTH, TE, body=CHUNKED)),
    _bad("chunks and a length", _post(TE, LENGTH, body=CHUNKED)),
    _bad("transfer-encoding: xchunked", _post(b"Transfer-Encoding: xchunked", body=CHUNKED)),
    _bad("transfer-encoding: chunked, identity", _post(b"Transfer-Encoding: chunked, identity", body=CHUNKED)),
    _bad("transfer-encoding: identity, length", _post(b"Transfer-Encoding: identity", LENGTH)),
    _bad("two transfer-encodings", _post(TE, b"Transfer-Encoding: x", body=CHUNKED)),
    _bad("transfer-encoding with a tab in its name", _post(b"Transfer-Encoding\t: chunked", body=CHUNKED)),
    _bad("a blank before the colon of the length", _post(b"Content-Length : %d" % len(BODY))),
    _bad("a blank before the colon of chunks", _post(b"Transfer-Encoding : chunked", body=CHUNKED)),
    _bad("two different lengths", _post(LENGTH, b"Content-Length: 5")),
    _bad("two equal lengths", _post(LENGTH, LENGTH)),
    _bad("a length with a sign", _post(b"Content-Length: +%d" % len(BODY))),
    _bad("a negative length", _post(b"Content-Length: -1")),
    _bad("a hexadecimal length", _post(b"Content-Length: 0x1e")),
    _bad("a list of lengths", _post(b"Content-Length: 30, 30")),
    _bad("a length of twenty digits", _post(b"Content-Length: 99999999999999999999")),
    _bad("a blank inside a length", _post(b"Content-Length: 3 0")),
    _bad("an empty length", _post(b"Content-Length:")),
    _bad("a bare LF after a header", _post(b"X-A: a\n" + LENGTH)),
    _bad("a bare CR inside a header", _post(b"X-A: a\rX-B: b", LENGTH)),
    _bad("a NUL inside a header", _post(b"X-A: a\x00b", LENGTH)),
    _bad("a NUL inside a name", _post(b"X\x00A: a", LENGTH)),
    _bad("a folded header", _post(b"X-A: a\r\n b", LENGTH)),
    _bad("a folded transfer-encoding", _post(b"Transfer-Encoding:\r\n chunked", body=CHUNKED)),
    _bad("a blank before the first header", b"POST /v1/chat/completions HTTP/1.1\r\n Host: gate\r\n\r\n"),
    _bad("a header without a colon", _post(b"nonsense", LENGTH)),
    _bad("an empty header name", _post(b": x", LENGTH)),
    _bad("LF in a chunk extension", _post(TE, body=b"5;a\nb\r\nhello\r\n0\r\n\r\n")),
    _bad("a chunk size that is not hexadecimal", _post(TE, body=b"zz\r\nhello\r\n0\r\n\r\n")),
    _bad("a chunk size with a sign", _post(TE, body=b"+5\r\nhello\r\n0\r\n\r\n")),
    _bad("a chunk without its end", _post(TE, body=b"5\r\nhelloXX0\r\n\r\n")),
    _bad("a chunk size beyond 64 bits", _post(TE, body=b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n")),
    Hostile("a head of 70 KB", _post(b"X-A: " + b"a" * 70_000, LENGTH), frozenset({431})),
    Hostile("a target of 70 KB", _get(b"/" + b"a" * 70_000), frozenset({431})),
    Hostile("200 headers", _post(*[b"a:"] * 200, LENGTH), frozenset({431})),
    Hostile("a second request in the body's read", _post(LENGTH) + _get(b"/v1/models"), frozenset({200}), reaches=1),
    _bad("CONNECT", b"CONNECT gate:80 HTTP/1.1\r\nHost: gate\r\n\r\n"),
    _bad("a blank inside the target", b"GET /v1/models HTTP/1.1 HTTP/1.1\r\nHost: gate\r\n\r\n"),
    _bad("an unknown version", b"GET /v1/models HTTP/9.9\r\nHost: gate\r\n\r\n"),
    _bad("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    _bad("no host", _post(LENGTH, host=False)),
    _bad("two hosts", _post(b"Host: other", LENGTH)),
    Hostile("a body of 34 MB announced", _post(b"Content-Length: 34600000", body=b"{"), frozenset({413})),
    _unknown("..", b"/v1/../admin/replicas"),
    _unknown("%2e%2e", b"/v1/%2e%2e/admin/replicas"),
    _unknown("a path parameter", b"/v1/models;a/../../metrics"),
    _unknown("a double slash", b"//v1/models"),
    _unknown("a page of the admin surface", b"/admin/replicas"),
    _unknown("a page of the engine", b"/metrics/../shutdown"),
    _one("the absolute form", _get(b"http://elsewhere/v1/models")),
    _one("a trailer that names a tenant", _post(TE, body=CHUNKED[:-2] + b"X-Tenant-ID: victim\r\n\r\n")),
)  # fmt: skip


async def send(port: int, hostile: Hostile) -> tuple[int | None, bool]:
    """Status of the first answer, and whether the server closed the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        status = None
        with suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(SECONDS):
                writer.write(hostile.wire)
                await writer.drain()
                status = int((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1])
                if hostile.closed:
                    await reader.read()
                    return status, True
        return status, reader.at_eof()
    finally:
        writer.transport.abort()
