"""A donor message that no publisher should send costs itself only, before the key of an announcement matters."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any, Final

import msgspec
import pytest
from tests.fakes.mutation import mutants

from sembase import ordered_stream
from sembase.event_batch import published_s
from semblend.contract.donor_event import DonorAnnounced, DonorBatch, DonorWithdrawn, GatesAnnounced, GenerationReset
from semblend.donors.index import DonorIndex
from semblend.donors.packing import MAX_EVENTS, is_snapshot, pack
from semblend.donors.sink import DonorSink

MUTANTS: Final = 6_000
MANY: Final = 1 << 21
MAPS: Final = b"\xdd" + MANY.to_bytes(4, "big") + b"\x80" * MANY
GOOD: Final = pack(DonorBatch(1.0, (DonorAnnounced("good", "space", 64, 32, bytes(8), bytes(4)),)))
SEEDS: Final = (
    GOOD,
    pack(DonorBatch(1.0, (GenerationReset(1), GatesAnnounced({"min_run_tokens": 64, "x": 0.5})))),
    pack(DonorBatch(1.0, (DonorWithdrawn("other", "evicted"),))),
)


def new_sink() -> DonorSink:
    return DonorSink(DonorIndex(b"k" * 32, max_donors=64, max_anchors=1 << 10), 0)


def test_no_mutant_raises_and_an_unreadable_one_changes_nothing() -> None:
    sink = new_sink()

    def applied() -> list[int]:
        counts = sink.counters
        return [counts.announced, counts.withdrawn, counts.purges, counts.relocated, counts.generations]

    async def scenario() -> None:
        unread = 0
        for payload in mutants(SEEDS, MUTANTS):
            published_s(payload)
            is_snapshot(payload)
            before, held = applied(), sink._index.donors(0)
            await sink.deliver(payload)
            if applied() == before:
                assert sink._index.donors(0) == held
                unread += 1
        assert unread > MUTANTS // 4, "most mutants are bad"
        sink.reset("restart")
        await sink.deliver(GOOD)
        assert sink._index.donors(0) == ["good"]

    asyncio.run(scenario())


def _message(events: bytes) -> bytes:
    return b"\x93\xcb?\xf0\0\0\0\0\0\0" + events + b"\x00"


def _event(**fields: bytes) -> bytes:
    known = {"type": msgspec.msgpack.encode("provider_gates"), "v": b"\x01"} | fields
    return b"\x91" + msgspec.msgpack.encode({name: msgspec.Raw(value) for name, value in known.items()})


SHAPES: Final = {
    "events": MAPS,
    "one event": b"\x91" + MAPS,
    "type": _event(type=MAPS),
    "gates": _event(gates=MAPS),
    "a gate": _event(gates=b"\x81\xa1a" + MAPS),
    "many gates": _event(gates=msgspec.msgpack.encode({f"{number:x}": 1 for number in range(MANY // 8)})),
    "many fields": b"\x91" + msgspec.msgpack.encode({f"{number:x}": 1 for number in range(MANY // 8)}),
    "new field": _event(new=MAPS),
}


@pytest.mark.parametrize("events", SHAPES.values(), ids=SHAPES)
def test_what_a_message_takes_in_memory_is_bounded_by_its_bytes(events: bytes) -> None:
    sink, payload = new_sink(), _message(events)

    async def scenario() -> int:
        await sink.deliver(GOOD)
        tracemalloc.start()
        await sink.deliver(payload)
        is_snapshot(payload)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert asyncio.run(scenario()) < 2 * len(payload)
    assert (sink._index.donors(0), sink.counters.malformed) == (["good"], 1)


def _deliver(sink: DonorSink, *events: Any) -> None:
    asyncio.run(sink.deliver(pack(DonorBatch(1.0, events))))


def test_more_events_than_a_publisher_sends_are_refused_together() -> None:
    sink = new_sink()
    _deliver(sink, *[GenerationReset(1)] * MAX_EVENTS)
    _deliver(sink, *[GenerationReset(1)] * (MAX_EVENTS + 1))
    assert (sink.counters.generations, sink.counters.malformed) == (MAX_EVENTS, 1)


def test_other_tasks_run_between_the_events_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_stream, "SLICE_SECONDS", 0.0)
    sink = new_sink()

    async def scenario() -> None:
        delivering = asyncio.create_task(sink.deliver(pack(DonorBatch(1.0, (GenerationReset(1),) * 50))))
        seen = set()
        while not delivering.done():
            await asyncio.sleep(0)
            seen.add(sink.counters.generations)
        assert len(seen) >= 50

    asyncio.run(scenario())
