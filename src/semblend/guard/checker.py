"""Background checks: requests are offered, a sample is sent again blended and cold, verdicts are written.

One pair at a time, at most ``pairs_per_minute``. At most ``MAX_WAITING`` requests with ``MAX_WAITING_BYTES`` in all
wait; the excess is dropped and counted. A failure of the engine or the disk is counted and never reaches a client.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

from semblend.contract import Event, GuardChecked, GuardTurnedOff
from semblend.guard.pair import AnswerError, Pair, answer_of, divergence, pair_of
from semblend.guard.sampler import is_sampled
from semblend.guard.tracker import GuardLimits
from semblend.guard.verdicts import read_tracker, write_tracker

MAX_WAITING: Final = 64
MAX_WAITING_BYTES: Final = 64 << 20
T = TypeVar("T")  # what the transport needs to send a request as the same tenant


class AskError(Exception):
    """The engine did not answer a request of the guard."""


@dataclass(frozen=True, slots=True)
class GuardOptions:
    path: Path
    fraction: float
    limits: GuardLimits = field(default_factory=GuardLimits)
    pairs_per_minute: float = 30.0
    priority: int | None = None


@dataclass(slots=True)
class GuardCounts:
    """Outcomes of sampled requests. ``not_blended``: the repeated request was served without reused KV."""

    checked: int = 0
    turned_off: int = 0
    not_blended: int = 0
    dropped: int = 0
    failed: int = 0
    unwritten: int = 0


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[T]):
    request_id: str
    pair: Pair
    sender: T

    @property
    def size_bytes(self) -> int:
        return len(self.pair.blended) + len(self.pair.cold)


class GuardChecker(Generic[T]):
    """``ask`` sends a body on behalf of a sender and returns the bytes of the reply, or raises `AskError`."""

    def __init__(
        self,
        options: GuardOptions,
        ask: Callable[[T, bytes], Awaitable[bytes]],
        emit: Callable[[Event], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.counts = GuardCounts()
        self.tracker = read_tracker(options.path, options.limits)
        self._ask = ask
        self._emit = emit
        self._clock_s = clock_s
        self._waiting: deque[_Waiting[T]] = deque()
        self._waiting_bytes = 0
        self._next_s = clock_s()
        self._arrived = asyncio.Event()

    def offer(self, request_id: str, path: str, body: bytes, sender: T) -> bool:
        """Offer a request that has been answered. True if it will be checked. Costs one hash unless it is sampled."""
        if not is_sampled(request_id, self.options.fraction):
            return False
        pair = pair_of(path, body, self.options.priority)
        if pair is None:
            return False
        waiting = _Waiting(request_id, pair, sender)
        is_full = len(self._waiting) >= MAX_WAITING or self._waiting_bytes + waiting.size_bytes > MAX_WAITING_BYTES
        if is_full:
            self.counts.dropped += 1
            return False
        self._waiting.append(waiting)
        self._waiting_bytes += waiting.size_bytes
        self._arrived.set()
        return True

    async def run(self) -> None:
        """Check waiting requests until cancelled."""
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            await asyncio.sleep(max(0.0, self._next_s - self._clock_s()))
            self._next_s = self._clock_s() + 60.0 / self.options.pairs_per_minute
            waiting = self._waiting.popleft()
            self._waiting_bytes -= waiting.size_bytes
            await self.check(waiting.request_id, waiting.pair, waiting.sender)

    async def check(self, request_id: str, pair: Pair, sender: T) -> None:
        try:
            blended = answer_of(await self._ask(sender, pair.blended))
            if blended.shape is None:
                self.counts.not_blended += 1
                return
            cold = answer_of(await self._ask(sender, pair.cold))
        except (AskError, AnswerError):
            self.counts.failed += 1
            return
        if cold.shape is not None:  # the engine ignored the hint: there is nothing to compare with
            self.counts.failed += 1
            return
        kl = divergence(cold, blended)
        is_turned_off = self.tracker.observe(blended.model, blended.shape, kl)
        self.counts.checked += 1
        self._emit(GuardChecked(request_id, blended.model, blended.shape.value, kl))
        if is_turned_off:
            self.counts.turned_off += 1
            why = self.tracker.why((blended.model, blended.shape))
            self._emit(GuardTurnedOff(blended.model, blended.shape.value, why))
        try:
            await asyncio.to_thread(write_tracker, self.options.path, self.tracker)
        except OSError:
            self.counts.unwritten += 1
