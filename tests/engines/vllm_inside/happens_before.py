"""What must happen before what: doubles of streams and events that record it, and every pair of accesses that may race.

Two accesses of the same part of memory, at least one of them a write, must be ordered: by their stream, by an event
that one stream waits for, or by the host, which learnt that an event has fired before it submitted the later one. The
order of submission alone orders nothing. Kept as vector clocks, so one run shows every race of its schedule.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

from semblend.kv.move import Move, MoveTable, Pages, PlainMove, RotationForm

Clock = dict[str, int]
ENGINE, OURS, HOST = "engine", "ours", "host"


@dataclass(frozen=True)
class Access:
    stream: str
    tick: int
    what: str


@dataclass
class _Part:
    written: Access | None = None
    read: dict[str, Access] = field(default_factory=dict)  # the latest of each stream since the last write


class Order:
    """Clocks of the streams and of the host, and the races found."""

    def __init__(self) -> None:
        self._clocks: dict[str, Clock] = {ENGINE: {}, OURS: {}, HOST: {}}
        self._parts: dict[Hashable, _Part] = {}
        self.races: list[str] = []
        self.accesses = 0

    def access(self, stream: str, what: str, reads: Iterable[Hashable], writes: Iterable[Hashable]) -> None:
        """Work submitted to a stream: after what the stream did, and after what the host knows."""
        clock = self._clocks[stream]
        _join(clock, self._clocks[HOST])
        clock[stream] = clock.get(stream, 0) + 1
        mine = Access(stream, clock[stream], what)
        for part in reads:
            self.accesses += 1
            seen = self._parts.setdefault(part, _Part())
            self._check(seen.written, mine, clock, part)
            seen.read[stream] = mine
        for part in writes:
            self.accesses += 1
            seen = self._parts.setdefault(part, _Part())
            self._check(seen.written, mine, clock, part)
            for other in seen.read.values():
                self._check(other, mine, clock, part)
            seen.written, seen.read = mine, {}

    def snapshot(self, stream: str) -> Clock:
        return dict(self._clocks[stream])

    def join(self, stream: str, clock: Clock) -> None:
        _join(self._clocks[stream], clock)

    def _check(self, earlier: Access | None, later: Access, clock: Clock, part: Hashable) -> None:
        if earlier is not None and clock.get(earlier.stream, 0) < earlier.tick:
            self.races.append(f"{later.what} on {later.stream} does not wait for {earlier.what}: {part}")


def _join(clock: Clock, other: Clock) -> None:
    for stream, tick in other.items():
        clock[stream] = max(clock.get(stream, 0), tick)


class RecordedEvent:
    """Fires some queries late, as a device does."""

    def __init__(self, order: Order, clock: Clock, late: int) -> None:
        self.clock = clock
        self._order = order
        self._late = late

    def query(self) -> bool:
        self._late -= 1
        if self._late >= 0:
            return False
        self._order.join(HOST, self.clock)
        return True


class RecordedStreams:
    """``without`` leaves one kind of wait out, to show that it is needed."""

    def __init__(self, order: Order, seed: int, without: str = "") -> None:
        self._order = order
        self._random = Random(seed)
        self._without = without

    def wait_for_engine(self) -> None:
        if self._without != "ours waits for the engine":
            self._order.join(OURS, self._order.snapshot(ENGINE))

    def engine_waits(self, event: Any) -> None:
        if self._without != "the engine waits for ours":
            self._order.join(ENGINE, event.clock)

    def on_ours(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def record(self) -> RecordedEvent:
        late = 0 if self._without == "events fire" else self._random.randrange(16)
        event = RecordedEvent(self._order, self._order.snapshot(OURS), late)
        if self._without == "events fire":
            event.clock = {}  # taken for done although it is not
        return event

    def pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8)


class RecordedMove:
    """Moves rows at once, and records where it read and wrote."""

    def __init__(
        self, order: Order, source: tuple[str, Pages], target: tuple[str, Pages], forms: tuple[RotationForm, ...]
    ) -> None:
        self._order = order
        self._source = source
        self._target = target
        self._move: Move = PlainMove(source[1], target[1], forms)

    def __call__(self, table: MoveTable, layers: range) -> None:
        self._order.access(
            OURS,
            f"a move into the {self._target[0]}",
            _parts(self._source, table.sources, layers),
            _parts(self._target, table.targets, layers),
        )
        self._move(table, layers)


def _parts(memory: tuple[str, Pages], slots: torch.Tensor, layers: range) -> list[Hashable]:
    taken = slots.tolist()
    return [(memory[0], layer, slot) for layer in layers for slot in taken]
