"""A model server on loopback that does what a script says, byte by byte, and a plain client that shows what it got."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

EVENTS_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Call:
    """One request at the scripted server. ``gone`` is set when the other side closes the connection."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int
    transport: asyncio.Transport
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def chunk(self, data: bytes) -> None:
        self.transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self) -> None:
        self.transport.write(b"0\r\n\r\n")

    def reply(self, body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
        self.transport.write(head.encode("latin-1") + body)


Script = Callable[[Call], Awaitable[None]]


class ScriptedUpstream:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.calls: list[Call] = []
        self.connections = 0
        self.open: set[_Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Connection(asyncio.Protocol):
    def __init__(self, server: ScriptedUpstream) -> None:
        self.server = server
        self.buffer = b""
        self.call: Call | None = None
        server.connections += 1
        self.number = server.connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.open.add(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        method, target, _ = first.split(" ")
        self.call = Call(method, target, headers, rest[:length], self.number, self.transport)
        self.server.calls.append(self.call)
        task = asyncio.get_running_loop().create_task(self._play(self.call))
        self.server.tasks.add(task)
        task.add_done_callback(self.server.tasks.discard)

    async def _play(self, call: Call) -> None:
        await self.server.script(call)

    def connection_lost(self, error: Exception | None) -> None:
        self.server.open.discard(self)
        if self.call is not None:
            self.call.gone.set()


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[ScriptedUpstream]:
    upstream = ScriptedUpstream(script)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(upstream), "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()
        for connection in tuple(upstream.open):
            connection.transport.abort()
        for task in tuple(upstream.tasks):
            task.cancel()
        await asyncio.gather(*upstream.tasks, return_exceptions=True)
        await server.wait_closed()
        while upstream.open:
            await asyncio.sleep(0)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool


class PlainClient:
    """One connection; decodes lengths and chunks itself, so that an unfinished body is seen as such."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, method: str, path: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: proxy", *(f"{name}: {value}" for name, value in headers)]
        if body:
            lines.append(f"content-length: {len(body)}")
        self.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = raw.strip().split("\r\n")
        return int(first.split(" ")[1]), {n.lower(): v for n, _, v in (line.partition(": ") for line in lines)}

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def answer(self, *, bodiless: bool = False) -> Answer:
        status, headers = await self.head()
        if bodiless or status in (204, 304):
            return Answer(status, headers, b"", True)
        if "content-length" in headers:
            length = int(headers["content-length"])
            body = await self.reader.read(length)
            while len(body) < length and (more := await self.reader.read(length - len(body))):
                body += more
            return Answer(status, headers, body, len(body) == length)
        pieces: list[bytes] = []
        try:
            while piece := await self.chunk():
                pieces.append(piece)
        except asyncio.IncompleteReadError:
            return Answer(status, headers, b"".join(pieces), False)
        return Answer(status, headers, b"".join(pieces), True)

    async def close(self) -> None:
        self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[PlainClient]:
    client = PlainClient(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield client
    finally:
        await client.close()


async def ask(
    port: int, method: str, path: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    async with connected(port) as client:
        client.send(method, path, body, headers)
        return await client.answer(bodiless=method == "HEAD")
