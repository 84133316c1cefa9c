"""What the client needs and costs: sockets, a quiet garbage collector, event loop lag, and its time per idle GET."""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from sembase.errors import ConfigurationError
from sembench.http.client import LiveClient
from sembench.load.summary import summarize, value_of

_OWN_FILES: Final = 64
_MAX_SOCKETS: Final = 60_000  # ports of one client address towards one server
_SECONDS_BETWEEN_PROBES: Final = 0.02
_STAMP: Final = struct.Struct("d")
_ROUNDS: Final = 30
_FIRST_ROUNDS: Final = 3  # connect, and fill caches
_PATH: Final = "/v1/models"
_IDLE_TIMEOUT_S: Final = 10.0


def allow_sockets(wanted: int | None) -> int:
    """Raises the soft limit of open files as far as needed and allowed; returns the number of sockets available."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    max_sockets = _MAX_SOCKETS if hard == resource.RLIM_INFINITY else min(_MAX_SOCKETS, hard - _OWN_FILES)
    sockets = max_sockets if wanted is None else wanted
    if sockets > max_sockets:
        raise ConfigurationError(f"{wanted} connections need more open files than the limit of {hard}; see ulimit -Hn")
    needed = sockets + _OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return sockets


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Freezes objects that exist at the start, so that a full collection during the load has little to scan."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class LagProbe:
    """How long a readable socket waits for the event loop under load, which delays every time stamp; see ``lags_ms``.

    A thread writes the time to a socket that the loop reads. A timer of the loop would not do: timers are rounded up to
    a whole millisecond, which is more than the lag of an unloaded loop.
    """

    def __init__(self) -> None:
        self.lags_ms: list[float] = []
        self._ours, self._theirs = socket.socketpair()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_stamps, name="lag-probe", daemon=True)

    async def __aenter__(self) -> Self:
        self._ours.setblocking(False)
        asyncio.get_running_loop().add_reader(self._ours, self._read_stamps)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        asyncio.get_running_loop().remove_reader(self._ours)
        self._ours.close()
        self._theirs.close()

    def _write_stamps(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN_PROBES):
            self._theirs.send(_STAMP.pack(time.perf_counter()))

    def _read_stamps(self) -> None:
        data = self._ours.recv(64 * _STAMP.size)
        now = time.perf_counter()
        self.lags_ms += [1000.0 * (now - stamp) for (stamp,) in _STAMP.iter_unpack(data)]


async def measure_idle_cost(client: LiveClient) -> dict[str, Any] | None:
    """The same GET by our client and by a bare socket, alternating, timed until the whole reply is there.

    The difference is an upper bound of what the client adds to a TTFT on an idle machine; ``LagProbe`` measures what
    the load adds. None if the reply to a bare GET cannot be parsed.
    """
    by_client: list[float] = []
    by_socket: list[float] = []
    try:
        async with asyncio.timeout(_IDLE_TIMEOUT_S):
            bare = await _BareSocket.connect(client.root_url)
            try:
                for _ in range(_FIRST_ROUNDS + _ROUNDS):
                    before = time.perf_counter()
                    await bare.get(_PATH)
                    between = time.perf_counter()
                    await client.get(_PATH)
                    by_client.append(1000.0 * (time.perf_counter() - between))
                    by_socket.append(1000.0 * (between - before))
            finally:
                bare.close()
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
        return None
    ours, theirs = summarize(by_client[_FIRST_ROUNDS:]), summarize(by_socket[_FIRST_ROUNDS:])
    ours_p50, theirs_p50 = value_of(ours, 50), value_of(theirs, 50)
    assert ours_p50 is not None
    assert theirs_p50 is not None
    return {"path": _PATH, "client_ms": ours, "bare_socket_ms": theirs, "difference_p50_ms": ours_p50 - theirs_p50}


class _BareSocket:
    """Just enough HTTP/1.1 for a GET with a known length or in chunks."""

    def __init__(self, root_url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._parts = urlsplit(root_url)
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, root_url: str) -> _BareSocket:
        parts = urlsplit(root_url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=True if secure else None)
        return cls(root_url, reader, writer)

    async def get(self, path: str) -> None:
        self._writer.write(f"GET {self._parts.path}{path} HTTP/1.1\r\nhost: {self._parts.netloc}\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, length, rest = head.partition(b"\r\ncontent-length:")
        if length:
            await self._reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
        elif b"\r\ntransfer-encoding: chunked" in head:
            while size := int((await self._reader.readline()).split(b";")[0], 16):
                await self._reader.readexactly(size + 2)
            await self._reader.readline()
        else:
            raise ValueError("a reply without a length")

    def close(self) -> None:
        self._writer.close()
