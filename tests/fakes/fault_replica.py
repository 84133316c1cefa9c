"""An OpenAI-compatible replica that fails on demand: in the test's own loop, or as a process that can be killed.

``mode`` says what happens to the next requests; ``answering`` and ``left`` are awaited instead of sleeping.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import ssl
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Literal

Mode = Literal[
    "ok",
    "error_500",
    "hang",
    "hang_after_head",
    "die_on_request",
    "die_after_head",
    "die_in_stream",
    "die_in_event",
    "stall_in_stream",
    "close_without_length",
    "die_in_json",
]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass
class FaultReplica:
    """``generated`` counts requests for which at least one token was sent. ``pages``: metrics by target; ``read`` the
    targets that were asked for."""

    mode: Mode = "ok"
    tokens: int = 4
    itl_s: float = 0.0
    name: str = "replica"
    port: int = 0
    requests: int = 0
    generated: int = 0
    health: int = 200
    seen: deque[Seen] = field(default_factory=lambda: deque(maxlen=2_000))
    extra_headers: bytes = b""
    cached_tokens: int = 4
    tls: ssl.SSLContext | None = None
    models: tuple[str, ...] = ("fake-model",)
    pages: dict[str, bytes] = field(default_factory=dict)
    read: deque[str] = field(default_factory=lambda: deque(maxlen=2_000))

    def __post_init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.answering = asyncio.Event()  # a token has been sent
        self.asked = asyncio.Event()  # a request for tokens is here
        self.left = asyncio.Event()  # a client closed its connection before its answer was complete
        self.resume = asyncio.Event()  # lets a stream continue after its first token
        self.resume.set()

    @property
    def origin(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._writers)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        """Like SIGKILL: the port is closed and every connection is reset."""
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, path, _ = first.split(" ")
        pairs = (line.partition(":") for line in lines)
        headers = tuple((name.strip().lower(), value.strip()) for name, _, value in pairs)
        body = await _body(reader, dict(headers))
        if path == "/health":
            await _plain(writer, self.health, b"")
            return True
        if path.startswith("/metrics"):
            self.read.append(path)
            await _plain(writer, 200 if path in self.pages else 404, self.pages.get(path, b""))
            return True
        if path == "/tokenize" and self.mode == "ok":
            await _plain(writer, 200, json.dumps({"tokens": list(body), "count": len(body)}).encode())
            return True
        self.requests += 1
        self.seen.append(Seen(method, path, headers, body))
        self.asked.set()
        return await self._serve(path, body, reader, writer)

    async def _serve(self, path: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        mode = self.mode
        if mode == "error_500":
            await _plain(writer, 500, b'{"error":{"message":"broken engine"}}')
            return True
        if mode == "hang":
            await self._wait_for_leaving(reader)
            return False
        if mode == "die_on_request":
            return False
        if path == "/v1/models" or not _streams(body):
            return await self._json(path, writer)
        if mode == "close_without_length":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + _event(0, self.name))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            return False
        writer.write(HEAD.replace(b"\r\n\r\n", b"\r\n" + self.extra_headers + b"\r\n"))
        await writer.drain()
        if mode == "hang_after_head":
            await self._wait_for_leaving(reader)
            return False
        if mode == "die_after_head":
            return False
        return await self._stream(reader, writer)

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self.generated += 1
        gone = asyncio.ensure_future(self._wait_for_leaving(reader))
        try:
            for number in range(self.tokens):
                if number == 2 and self.mode == "die_in_stream":
                    return False
                if number == 2 and self.mode == "stall_in_stream":
                    await gone
                    return False
                event = _event(number, self.name)
                if number == 2 and self.mode == "die_in_event":
                    _chunk(writer, event[: len(event) // 2])
                    await writer.drain()
                    return False
                _chunk(writer, event)
                await writer.drain()
                self.answering.set()
                ready = asyncio.ensure_future(self._next_token())
                await asyncio.wait({gone, ready}, return_when=asyncio.FIRST_COMPLETED)
                ready.cancel()
                if gone.done():
                    return False
            usage = {
                "prompt_tokens": 8,
                "completion_tokens": self.tokens,
                "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            }
            _chunk(writer, b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
            _chunk(writer, b"data: [DONE]\n\n")
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return False  # the wait for the client's departure may have consumed a byte of its next request
        finally:
            gone.cancel()

    async def _next_token(self) -> None:
        await self.resume.wait()
        await asyncio.sleep(self.itl_s)

    async def _json(self, path: str, writer: asyncio.StreamWriter) -> bool:
        answer: dict[str, Any] = {"object": "list", "data": [{"id": name} for name in self.models]}
        if path != "/v1/models":
            self.generated += 1
            answer = {"choices": [{"message": {"content": f"from {self.name}"}}], "usage": {"prompt_tokens": 8}}
        body = json.dumps(answer).encode()
        if self.mode == "die_in_json":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4096\r\n\r\n" + body)
            await writer.drain()
            return False
        await _plain(writer, 200, body)
        return True

    async def _wait_for_leaving(self, reader: asyncio.StreamReader) -> None:
        """A client that pipelines nothing sends nothing until it leaves."""
        with contextlib.suppress(ConnectionError):
            if await reader.read(1) != b"":
                return
        self.left.set()


def _streams(body: bytes) -> bool:
    try:
        return bool(json.loads(body).get("stream"))
    except (ValueError, AttributeError, RecursionError):
        return False


def _event(number: int, name: str) -> bytes:
    choice = {"index": 0, "delta": {"content": f"{name}-{number} "}, "finish_reason": None}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":  # trailers
        pass
    return b"".join(pieces)


async def _plain(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    kind = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    writer.write(b"HTTP/1.1 %d X\r\n" % status + kind + body)
    await writer.drain()


@contextlib.contextmanager
def replica_process(
    *, port: int = 0, tokens: int = 50, itl_ms: float = 20.0, name: str = "replica"
) -> Iterator[tuple[Popen[bytes], int]]:
    """A replica that can really be killed; it ends with the process that started it."""
    options = [f"--port={port}", f"--tokens={tokens}", f"--itl-ms={itl_ms}", f"--name={name}"]
    process = Popen([sys.executable, str(Path(__file__)), *options], stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait()


async def _main(options: argparse.Namespace) -> None:
    replica = FaultReplica(tokens=options.tokens, itl_s=options.itl_ms / 1e3, name=options.name, port=options.port)
    await replica.start()
    print(replica.port, flush=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin, stop.set)
    await stop.wait()
    await replica.die()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--itl-ms", type=float, default=20.0)
    parser.add_argument("--name", default="replica")
    asyncio.run(_main(parser.parse_args()))
