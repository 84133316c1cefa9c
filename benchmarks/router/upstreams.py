"""A stand-in replica that costs next to nothing: HTTP/1.1 in, a fixed stream of SSE tokens out. Run as a process.

``replica_specs(n)`` gives ``load.py`` its commands. The request itself sets the pace, by two fields that routers which
rewrite bodies keep: ``max_tokens`` is the number of tokens, ``seed`` the milliseconds before each of them (0: all in
one write). Per open stream: one protocol object and one timer, about 1 kB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import sys
from collections.abc import Callable
from typing import cast

from scripts.engines.server import PORT, ServerSpec

MODEL = "bench"
_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
_NUMBER = {
    "max_tokens": re.compile(rb"\"max_(?:completion_)?tokens\"\s*:\s*(\d+)"),  # sglang-router renames it
    "seed": re.compile(rb"\"seed\"\s*:\s*(\d+)"),
}
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"  # a body of JSON contains no line break
_EVENT_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_MAX_HEAD_BYTES = 65_536


def _event(payload: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


TOKEN = _event({**_CHUNK, "choices": [{"index": 0, "delta": {"content": " token"}, "finish_reason": None}]})
END = _event({**_CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}) + b"data: [DONE]\n\n"


def stream_body(tokens: int) -> bytes:
    """What a client must have received in the end, byte by byte."""
    return TOKEN * tokens + END


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_TOKEN_CHUNK = _chunk(TOKEN)
_END_CHUNK = _chunk(END) + b"0\r\n\r\n"


def replica_specs(count: int) -> list[ServerSpec]:
    command = (sys.executable, "-m", "benchmarks.router.upstreams", "--port", PORT)
    return [ServerSpec(f"upstream-{number}", command, startup_timeout_s=30.0) for number in range(count)]


class Counts:
    """Of one process; ``aborted`` are streams whose other end left before the last token."""

    def __init__(self) -> None:
        self.requests = self.streams = self.peak_streams = self.aborted = 0

    def as_json(self) -> bytes:
        return json.dumps(self.__dict__).encode()


class Replica(asyncio.Protocol):
    """One connection: requests follow each other, never overlap."""

    __slots__ = ("_counts", "_held", "_left", "_loop", "_pause_s", "_timer", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, counts: Counts) -> None:
        self._loop, self._counts = loop, counts
        self._held = b""
        self._left, self._pause_s = 0, 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class does not derive from it

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._counts.streams -= 1
            self._counts.aborted += 1
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._held = self._held + data if self._held else data
        head_end = self._held.find(b"\r\n\r\n")
        if head_end < 0:
            if len(self._held) > _MAX_HEAD_BYTES and self._transport is not None:
                self._transport.close()
            return
        length = _LENGTH.search(self._held, 0, head_end + 2)
        end = head_end + 4 + (int(length.group(1)) if length else 0)
        if length is None and _CHUNKED.search(self._held, 0, head_end + 2):
            last = self._held.find(_LAST_CHUNK, head_end + 2)
            end = last + len(_LAST_CHUNK) if last >= 0 else len(self._held) + 1
        if len(self._held) >= end:
            request, self._held = self._held[:end], self._held[end:]
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        if request.startswith(b"POST"):
            self._counts.requests += 1
            self._start_stream(_number(request, "max_tokens", 16), _number(request, "seed", 0))
            return
        self._write(_plain(_look_up(request.split(b" ", 2)[1], self._counts)))

    def _start_stream(self, tokens: int, pause_ms: int) -> None:
        if not pause_ms:
            self._write(_EVENT_HEAD + _TOKEN_CHUNK * tokens + _END_CHUNK)
            return
        self._counts.streams += 1
        self._counts.peak_streams = max(self._counts.peak_streams, self._counts.streams)
        self._left, self._pause_s = tokens, pause_ms / 1000.0
        self._write(_EVENT_HEAD)
        self._timer = self._loop.call_later(self._pause_s, self._next_token)

    def _next_token(self) -> None:
        self._left -= 1
        if self._left > 0:
            self._write(_TOKEN_CHUNK)
            self._timer = self._loop.call_later(self._pause_s, self._next_token)
            return
        self._timer = None
        self._counts.streams -= 1
        self._write(_TOKEN_CHUNK + _END_CHUNK)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _number(request: bytes, name: str, otherwise: int) -> int:
    found = _NUMBER[name].search(request)
    return int(found.group(1)) if found else otherwise


def _look_up(path: bytes, counts: Counts) -> bytes:
    """Every question a router asks before it trusts a replica gets an answer."""
    if path == b"/counts":
        return counts.as_json()
    if path.startswith(b"/v1/models"):
        return json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
    return json.dumps({"model_path": MODEL, "served_model_name": MODEL, "status": "ok"}).encode()


def _plain(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


async def serve(port: int) -> None:
    loop, counts = asyncio.get_running_loop(), Counts()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(lambda: Replica(loop, counts), "127.0.0.1", port, backlog=4096)
    await stop.wait()
    server.close()


def runner() -> Callable[..., None]:
    """``asyncio.run``, on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    run: Callable[..., None] = uvloop.run
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--port", type=int, required=True)
    runner()(serve(parser.parse_args().port))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
