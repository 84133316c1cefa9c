"""How long a readable socket waits for the event loop while it carries the load: what the loop adds to a time stamp.

A thread writes the time to a socket the loop reads, every few milliseconds. A timer of the loop itself would not do:
those are rounded up to a whole millisecond, which is more than an unloaded loop's lag.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Final, Self

_SECONDS_BETWEEN_PROBES: Final = 0.02
_STAMP: Final = struct.Struct("d")


class LagProbe:
    """Runs from entering to leaving; ``lags_ms`` grows meanwhile."""

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
