"""Requests that ask for an upgrade and hide a second request in their body.

httptools ends a request with ``Connection: Upgrade`` at its head; what follows was then read as a new request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

PATH: Final = "/v1/chat/completions"
HIDDEN_PATH: Final = "/v1/completions"
HIDDEN: Final = (
    b"POST /v1/completions HTTP/1.1\r\nHost: gate\r\nX-Tenant-ID: victim\r\nContent-Type: application/json\r\n"
    b"Content-Length: 31\r\n\r\n" + b'{"model": "m", "prompt": "abc"}'
)
BLANK_BYTES: Final = 400_000  # more than a front buffers in memory
SAFE: Final = ("one, whole", "none")
REPLY_STEPS: Final = 24  # of half a second; counted, as a machine that stalls takes many seconds for one of them


@dataclass(frozen=True, slots=True)
class Variant:
    """``head`` and ``body`` are written separately: a later read begins with the body."""

    name: str
    head: bytes
    body: bytes


def _variant(name: str, body: bytes, *lines: str, chunked: bool = False) -> Variant:
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    head = "\r\n".join((f"POST {PATH} HTTP/1.1", "Host: gate", "Content-Type: application/json", *lines, framing))
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    return Variant(name, head.encode() + b"\r\n\r\n", sent)


JDK: Final = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
)
VARIANTS: Final = (
    _variant("h2c", HIDDEN, "Connection: Upgrade", "Upgrade: h2c"),
    _variant("as Java's client", HIDDEN, *JDK),
    _variant("chunked", HIDDEN, "Connection: Upgrade", "Upgrade: h2c", chunked=True),
    _variant("websocket", HIDDEN, "Connection: keep-alive, Upgrade", "Upgrade: websocket"),
    _variant("behind 400 KB of CRLF", b"\r\n" * (BLANK_BYTES // 2) + HIDDEN, "Connection: upgrade", "Upgrade: h2c"),
)  # fmt: skip


def jdk_request(text: str = "hello") -> Variant:
    """What Java's HTTP client sends first on a plain connection."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    return _variant("Java's client", body, *JDK)


async def send(port: int, variant: Variant) -> bytes:
    """Writes the head, lets it arrive, writes the body; returns all bytes received until the server stops sending."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(variant.head)
        await writer.drain()
        await asyncio.sleep(0.2)
        received = b""
        with suppress(ConnectionError, TimeoutError):
            writer.write(variant.body)
            await writer.drain()
            received = await _read_first(reader)
            async with asyncio.timeout(0.5):  # a second answer would follow at once
                while piece := await reader.read(1 << 20):
                    received += piece
        return received
    finally:
        writer.transport.abort()


async def _read_first(reader: asyncio.StreamReader) -> bytes:
    """Raises ``TimeoutError`` if nothing comes: some fronts keep such a request."""
    reading = asyncio.ensure_future(reader.read(1 << 20))
    for _ in range(REPLY_STEPS):
        if (await asyncio.wait({reading}, timeout=0.5))[0]:
            return reading.result()
    reading.cancel()
    raise TimeoutError


def verdict(variant: Variant, seen: Iterable[tuple[str, bytes]]) -> str:
    """``seen``: path and body of each request at the engine. Safe is none, or exactly the outer one, whole."""
    found = list(seen)
    body = variant.body
    if b"chunked" in variant.head:
        body = HIDDEN
    if not found:
        return "none"
    if found == [(PATH, body)]:
        return "one, whole"
    word = "SMUGGLED" if any(path == HIDDEN_PATH for path, _ in found) else "BODY LOST"
    return f"{word}: " + ", ".join(f"{path} with {len(each)} bytes" for path, each in found)
