"""An HTTP client that sees what others hide: whether a chunked body really ended, and every header as it came."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reply:
    """``complete``: the body has its announced length or its last chunk. ``events``: data of a stream, in order."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    complete: bool

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def events(self) -> list[str]:
        lines = self.body.decode().split("\n")
        return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]

    @property
    def error_code(self) -> str | None:
        """Of the body, or of the last event of a stream."""
        text = self.events[-1] if self.events else self.body.decode()
        try:
            return str(json.loads(text)["error"]["code"])
        except (ValueError, KeyError, TypeError):
            return None


class Exchange:
    """One connection, one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int, tls: ssl.SSLContext | None = None) -> Exchange:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))

    async def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        named = {"host": "test", "content-length": str(len(body)), **(headers or {})}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self.writer.write(head.encode("latin-1") + b"\r\n" + body)
        await self.writer.drain()

    async def head(self) -> tuple[int, tuple[tuple[str, str], ...]]:
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.strip().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return int(first.split(" ")[1]), tuple((name.lower(), value.strip()) for name, _, value in pairs)

    async def first_chunk(self) -> bytes:
        size = int((await self.reader.readuntil(b"\r\n")).strip(), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def rest(self, status: int, headers: tuple[tuple[str, str], ...], seen: bytes = b"") -> Reply:
        named = dict(headers)
        if "content-length" in named:
            body, complete = await self._sized(int(named["content-length"]))
        else:
            body, complete = await self._chunked()
        return Reply(status, headers, seen + body, complete)

    async def _sized(self, size: int) -> tuple[bytes, bool]:
        try:
            return await self.reader.readexactly(size), True
        except asyncio.IncompleteReadError as cut:
            return cut.partial, False
        except ConnectionError:
            return b"", False

    async def _chunked(self) -> tuple[bytes, bool]:
        body = b""
        try:
            while piece := await self.first_chunk():
                body += piece
        except (asyncio.IncompleteReadError, ConnectionError):
            return body, False
        return body, True

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


async def ask(
    port: int,
    path: str = "/v1/chat/completions",
    body: dict[str, Any] | bytes | None = None,
    *,
    method: str = "POST",
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Reply:
    exchange = await Exchange.open(port, tls)
    try:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        await exchange.send(method, path, content, headers)
        return await exchange.rest(*await exchange.head())
    finally:
        await exchange.close()


def chat(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}], **more}
