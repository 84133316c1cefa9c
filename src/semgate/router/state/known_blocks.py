"""Which replica holds which leading blocks: announced by the engines, or predicted from what was sent there.

In: replicas that are added and removed, block keys of requests; out: leading blocks held, by the fleet's slot. A
replica is assumed to hold what it was sent in the last ``ANNOUNCE_SECONDS``. Beyond that, a replica that publishes KV
events holds what it announced; any other holds what it answered in the last ``history_seconds``. Announced blocks are
keyed as the engine keys them, sent ones by tenant too. About 30 bytes per block and replica, bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.kept_task import KeptTask
from sembase.zmq_curve import CurveClient
from sembase.zmq_stream import StreamOptions
from semgate.events.feed import EventFeed, StreamStatus
from semgate.events.resume import StreamState
from semgate.fleet import Replica
from semgate.http.request_body import Asked
from semgate.index.approximate import ApproximateIndex
from semgate.index.blocks import BlockIndex
from semgate.index.keys import root_key
from semgate.placement.view import BySlot, Keys
from semgate.router.state.announcement_trust import AnnouncementTrust
from semgate.router.state.metrics import Sample

# An engine announces a prefix only after it has computed it.
ANNOUNCE_SECONDS: Final = 5.0

# Outstanding work of the tables is done in steps of this size, below a millisecond each.
TIDY_BLOCKS: Final = 256
TIDY_SECONDS: Final = 0.1
BETWEEN_STEPS_SECONDS: Final = 0.002


class KnownBlocks:
    """Maps the slot numbers of each index to the fleet's slots. One loop, one thread."""

    def __init__(self, blocks_per_replica: int, history_seconds: float, curve: CurveClient | None = None) -> None:
        self._curve = curve
        self.load_state: Callable[[str], Awaitable[StreamState | None]] | None = None  # by the stream's endpoint
        self._streams: dict[int, str] = {}  # by slot
        self._feed = EventFeed(BlockIndex(blocks_per_replica))
        self._announced = _Slots()
        self.trust = AnnouncementTrust()
        self._history = _Sent(ApproximateIndex(blocks_per_replica, history_seconds))
        self._recent = _Sent(ApproximateIndex(blocks_per_replica, ANNOUNCE_SECONDS))
        self._names: dict[int, str] = {}
        self._added = 0
        self._leaving: set[asyncio.Task[None]] = set()
        self._tidying: KeptTask | None = None

    @property
    def is_catching_up(self) -> bool:
        return self._feed.is_catching_up

    def add(self, replica: Replica) -> None:
        endpoint, slot = replica.endpoint, replica.slot
        if self._tidying is None:
            self._tidying = KeptTask("tidy block indexes", self._keep_tidy, lambda: None)
        self._recent.add(slot)
        if endpoint.events is None:
            self._history.add(slot)
            return
        self._added += 1
        name = self._names[slot] = f"{replica.name}#{self._added}"  # its old stream may still be closing
        options = StreamOptions(endpoint.events, endpoint.replay, curve=self._curve)
        load_state = None if self.load_state is None else partial(self.load_state, endpoint.events)
        self._streams[slot] = endpoint.events
        self._announced.add(slot, self._feed.add(name, options, load_state=load_state))

    def remove(self, replica: Replica) -> None:
        slot = replica.slot
        self.trust.forget(slot)
        self._history.remove(slot)
        self._recent.remove(slot)
        name = self._names.pop(slot, None)
        self._streams.pop(slot, None)
        if name is not None:
            self._announced.remove(slot)
            task = asyncio.get_running_loop().create_task(self._feed.remove(name))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    def lose(self, replica: Replica) -> None:
        """The replica's cache is gone. Announced blocks stay until its next event reports the restart."""
        self.trust.forget(replica.slot)
        self._history.clear(replica.slot)
        self._recent.clear(replica.slot)

    async def restored(self) -> None:
        """Returns when all that was known before a restart is known again, as far as it was kept."""
        await self._feed.restored()

    def streams(self) -> Sequence[tuple[str, Callable[[], StreamState | None]]]:
        """Each event stream's endpoint, and a function that copies what it announced."""
        return [(self._streams[slot], partial(self._feed.state, name)) for slot, name in self._names.items()]

    @property
    def are_announced(self) -> bool:
        return bool(self._announced)

    def resolved(self, asked: Asked) -> Asked:
        """The request with model and adapter as the engines name them; used for blocks and donors."""
        model, lora = self._feed.resolve(asked.model, asked.lora)
        return replace(asked, model=model, lora=lora)

    def announced(self, keys: Keys) -> BySlot | None:
        """Leading blocks by slot as announced, believed or not; keys from ``announced_root``. None if no engine
        announces."""
        return self._announced.by_slot(self._feed.index.longest(keys)) if self._announced else None

    def predicted(self, keys: Keys) -> BySlot | None:
        """Leading blocks by slot, from what was sent there; keys from ``sent_root``."""
        return _longest([each.look_up(keys) for each in (self._history, self._recent) if each])

    def announced_root(self, asked: Asked) -> int:
        """The key before the first block, for a request that ``resolved`` returned."""
        return self._feed.request_root(asked.model, asked.cache_salt, asked.lora)

    def sent(self, slot: int, keys: Keys) -> None:
        """The request was sent. The replica may still refuse it, so its blocks count for ``ANNOUNCE_SECONDS`` only."""
        self._recent.note(slot, keys)

    def answered(self, slot: int, keys: Keys) -> None:
        """The replica has computed the prompt, so its blocks count for ``history_seconds``."""
        self._history.note(slot, keys)

    def announced_block_tokens(self) -> int | None:
        """The block size the engines announced; None before the first block."""
        return next((each.block_tokens for each in self._feed.statuses() if each.block_tokens is not None), None)

    def samples(self, replicas: Iterable[Replica]) -> Iterable[Sample]:
        by_name = {name: slot for slot, name in self._names.items()}
        of_slot = {replica.slot: replica.name for replica in replicas}
        for each in self._feed.statuses():
            slot = by_name.get(each.replica)
            if slot is None or slot not in of_slot:
                continue
            labels = {"replica": of_slot[slot]}
            yield "gauge", "semgate_index_blocks", "KV blocks announced by a replica.", labels, each.blocks
            yield (
                "gauge",
                "semgate_events_connected",
                "1 while the replica's event stream is connected.",
                labels,
                float(each.connected),
            )
            yield (
                "gauge",
                "semgate_events_believed",
                "0 while the engine reports fewer cached tokens than were announced for it.",
                labels,
                float(self.trust.is_believed(slot)),
            )
            counted = each.stream
            for name, about, value in (
                ("messages", "KV event messages received.", counted.messages),
                ("gaps", "Gaps in the sequence of KV event messages.", counted.gaps),
                ("resyncs", "Times the replica's blocks were cleared after a gap.", counted.resyncs),
                ("restarts", "Restarts of the replica seen in its event stream.", counted.restarts),
                ("replayed", "KV event messages received by replay.", counted.replayed),
                ("unreadable", "KV event messages or events that could not be decoded.", _unreadable(each)),
                ("deaths", "Times the task that follows the stream died.", each.deaths),
            ):
                yield "counter", f"semgate_events_{name}", about, labels, value
        counters = self._feed.index.counters
        orphans, evicted = counters.orphan_blocks, counters.evicted_blocks
        yield "counter", "semgate_index_orphan_blocks", "Blocks whose parent was never announced.", {}, orphans
        yield "counter", "semgate_index_evicted_blocks", "Blocks evicted from the full index.", {}, evicted

    async def _keep_tidy(self) -> None:
        """Expire entries and finish pending clears and growth, even when no requests arrive."""
        while True:
            has_more = [each.tidy(TIDY_BLOCKS) for each in (self._feed.index, self._history, self._recent)]
            await asyncio.sleep(BETWEEN_STEPS_SECONDS if any(has_more) else TIDY_SECONDS)

    async def close(self) -> None:
        if self._tidying is not None:
            await self._tidying.stop()
            self._tidying = None
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self._feed.close()


def sent_root(tenant: str, model: str | None, salt: str | None, lora: str | None) -> int:
    """Keys are per tenant, even if the engine would share the blocks between tenants."""
    own = f"{len(tenant)}:{tenant}" + ("" if salt is None else f"={salt}")
    return root_key(model or "", own, lora)


class _Slots:
    """Maps the fleet's slots to those of one index."""

    def __init__(self) -> None:
        self._of_fleet: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._of_fleet)

    def add(self, slot: int, inner: int) -> None:
        self._of_fleet[slot] = inner

    def remove(self, slot: int) -> int | None:
        return self._of_fleet.pop(slot, None)

    def inner(self, slot: int) -> int | None:
        return self._of_fleet.get(slot)

    def by_slot(self, found: NDArray[np.int32]) -> BySlot:
        blocks = np.zeros(max(self._of_fleet) + 1, np.int32)
        for slot, inner in self._of_fleet.items():
            blocks[slot] = found[inner]
        return blocks


class _Sent:
    """What was sent to which replica, in one approximate index."""

    def __init__(self, index: ApproximateIndex) -> None:
        self._index = index
        self._slots = _Slots()

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, slot: int) -> None:
        self._slots.add(slot, self._index.add_slot())

    def remove(self, slot: int) -> None:
        inner = self._slots.remove(slot)
        if inner is not None:
            self._index.remove_slot(inner)

    def clear(self, slot: int) -> None:
        inner = self._slots.inner(slot)
        if inner is not None:
            self._index.cleared(inner)

    def note(self, slot: int, keys: Keys) -> None:
        inner = self._slots.inner(slot)
        if inner is not None and keys.size:
            self._index.routed(inner, keys)

    def tidy(self, blocks: int) -> bool:
        return self._index.tidy(blocks)

    def look_up(self, keys: Keys) -> BySlot:
        return self._slots.by_slot(self._index.longest(keys))


def _unreadable(status: StreamStatus) -> int:
    applied = status.applied
    return status.stream.malformed_frames + applied.malformed_batches + applied.malformed_events


def _longest(found: list[BySlot]) -> BySlot | None:
    if len(found) < 2:
        return found[0] if found else None
    longest = np.zeros(max(each.size for each in found), np.int32)
    for each in found:
        longest[: each.size] = np.maximum(longest[: each.size], each)
    return longest
