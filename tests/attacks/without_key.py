"""What a client without a key can do to a listener: requests ahead of an answer, heads of many headers, silence.

An attack is held until every probe sent meanwhile has its answer; memory is compared before and at its peak.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from tests.attacks.processes import NOW, PEAK, Served, memory_mb
from tests.attacks.targets import Target

CONNECTIONS: Final = 30
SILENT: Final = 80  # more than the simulator once allowed in all
PROBES: Final = 5
GROWTH_MB: Final = 48  # twenty times less than the first two attacks once took
PATIENCE_S: Final = 120.0  # only ends a hang
_SMALL: Final = b"GET / HTTP/1.1\r\nhost:\r\n\r\n"
_LINES: Final = b"".join(b"%c:\r\n" % letter for letter in b"abcdefgh")
HELD: Final = {
    "requests ahead": (CONNECTIONS, _SMALL * (250_000 // len(_SMALL))),
    "64,000 headers": (CONNECTIONS, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n" + _LINES * 8_000 + b"\r\n{"),
    "silence": (SILENT, b"G"),
}


@dataclass(frozen=True, slots=True)
class Found:
    answered: int
    grown_mb: int

    def __str__(self) -> str:
        return f"+{self.grown_mb} MB (at most {GROWTH_MB}), {self.answered} of {PROBES} probes answered"

    @property
    def stopped(self) -> bool:
        return self.answered == PROBES and self.grown_mb <= GROWTH_MB


async def held(served: Served, listener: str, attack: str) -> Found:
    connections, wire = HELD[attack]
    before = memory_mb(served.pid, NOW)
    async with _held(served.ports[listener], connections, wire):
        answered = sum([await _is_answered(*served.health) for _ in range(PROBES)])
        return Found(answered, max(memory_mb(served.pid, PEAK) - before, 0))


@asynccontextmanager
async def _held(port: int, connections: int, wire: bytes) -> AsyncIterator[None]:
    """Answers are not read, and nothing is closed before the end."""
    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(connections)]
    try:
        sending = [asyncio.ensure_future(_send(writer, wire)) for writer in writers]
        await asyncio.wait(sending, timeout=1.0)  # a server that reads no more must not end the attack
        yield
        for each in sending:
            each.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
    finally:
        for writer in writers:
            writer.transport.abort()


async def _send(writer: asyncio.StreamWriter, wire: bytes) -> None:
    with suppress(ConnectionError):
        writer.write(wire)
        await writer.drain()


async def _is_answered(port: int, path: str) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                return (await reader.readuntil(b"\r\n")).split(b" ")[1] == b"200"
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False


async def is_departure_seen(gate: Target, ahead: bytes = _SMALL) -> bool:
    """The client leaves a stream that the engine still holds open, with ``ahead`` sent after its request."""
    gate.engine.resume.clear()
    gate.engine.left.clear()
    body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hello"}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
            writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            await reader.readuntil(b"data: ")
            writer.write(ahead)
            await writer.drain()
            writer.close()
            await gate.engine.left.wait()
    except TimeoutError:
        return False
    finally:
        gate.engine.resume.set()
    return True
