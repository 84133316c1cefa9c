"""Clocks that a test moves forward, so that time limits are tested without waiting for them.

``Clock`` is for code that is given one, ``MovableClock`` is an event loop.

Limits in such tests are thousands of seconds: a machine that stalls for a while makes nothing late, a wrong limit fails
every time. Timers (``call_later``, ``asyncio.sleep``, ``asyncio.timeout``) see the moved clock; sockets work as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
LONG_S: Final = 10_000.0  # a limit no test reaches without moving the clock
_CYCLES: Final = 50  # more than any chain of callbacks between a timer and what it causes


class Clock:
    """Instead of ``time.monotonic``: seconds that pass only when the test says so."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class MovableClock(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self._skipped_s

    async def skip(self, seconds: float) -> None:
        """Let ``seconds`` pass at once: due timers run, and what they trigger, before this returns."""
        self._skipped_s += seconds
        for _ in range(_CYCLES):
            await asyncio.sleep(0)


def run_with_clock(main: Callable[[MovableClock], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=MovableClock) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, MovableClock)
        return runner.run(main(loop))
