"""KV events over real sockets through everything that goes wrong; afterwards the index equals the engine's own list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.fakes.kv_publisher import BLOCK, CuttableLink, EnginePool, KvPublisher
from tests.waiting import PATIENCE_S, until

from sembase import zmq_stream
from sembase.errors import ConfigurationError
from sembase.zmq_stream import StreamOptions
from semgate.events.feed import EventFeed, StreamStatus
from semgate.events.wire import BlockStored, encode_batch
from semgate.index.blocks import BlockIndex
from semgate.index.keys import request_keys
from semgate.router.operations.warm_up import warm_up

REPLICA = "replica-0"


@pytest.fixture(scope="module", autouse=True)
def compiled_loops() -> None:
    """On a busy machine loading them takes longer than any wait of these tests; the router does it before it opens."""
    warm_up()


@pytest.fixture(autouse=True)
def patient_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stalls has not lost its connections: connections are counted here."""
    monkeypatch.setattr(zmq_stream, "HEARTBEAT_MS", int(1000 * PATIENCE_S))


def run(test: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE_S))


def options_for(publisher: KvPublisher, *, replay: bool = True) -> StreamOptions:
    """Nothing is given up or asked again for being late, which on a busy machine anything may be."""
    return StreamOptions(
        publisher.endpoint,
        publisher.replay_endpoint if replay else None,
        check_seconds=PATIENCE_S,
        replay_timeout_seconds=PATIENCE_S,
        reorder_seconds=PATIENCE_S,
    )


def watchful(publisher: KvPublisher) -> StreamOptions:
    """Half a second of silence, and the publisher is asked, again and again: some messages may come twice."""
    return replace(options_for(publisher), check_seconds=0.5, replay_timeout_seconds=2.0)


@asynccontextmanager
async def listening(publisher: KvPublisher, options: StreamOptions | None = None) -> AsyncIterator[EventFeed]:
    """Connected, subscribed and up to date with what the publisher had before."""
    feed = EventFeed(BlockIndex())
    chosen = options or options_for(publisher)
    feed.add(REPLICA, chosen)
    try:
        await publisher.subscribed()
        await until(lambda: status(feed).connected)
        if chosen.replay_endpoint == publisher.replay_endpoint:
            await until(lambda: status(feed).next_seq == publisher.next_seq)
        yield feed
    finally:
        await feed.close()


def status(feed: EventFeed) -> StreamStatus:
    return next(one for one in feed.statuses() if one.replica == REPLICA)


def has_read(feed: EventFeed, messages: int) -> bool:
    return status(feed).next_seq == messages


def equals(feed: EventFeed, pool: EnginePool) -> bool:
    """Block by block: the same engine hashes, each under the key of its own whole prefix."""
    slot = feed.slot(REPLICA)
    assert slot is not None
    root = feed.request_root("any model", None)
    expected = {
        (hash_, int(request_keys(np.array(prefix, np.uint32), BLOCK, root)[-1])) for hash_, prefix in pool.held.items()
    }
    return feed.index.dump(slot) == expected


async def live(pool: EnginePool, publisher: KvPublisher, steps: int, *, lost: bool = False) -> None:
    for _ in range(steps):
        await publisher.publish(pool.step(), lost=lost)


@pytest.mark.parametrize("replay", [True, False])
def test_an_undisturbed_stream(replay: bool) -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher, listening(publisher, options_for(publisher, replay=replay)) as feed:
            await live(pool, publisher, 200)
            await until(lambda: status(feed).next_seq == 200)
            assert equals(feed, pool)
            counters = status(feed).stream
            assert (counters.messages, counters.gaps, counters.resyncs, counters.restarts) == (200, 0, 0, 0)
            assert status(feed).block_tokens == BLOCK
            await publisher.publish(pool.clear())
            await until(lambda: status(feed).next_seq == 201)
            assert status(feed).blocks == 0
            await live(pool, publisher, 50)
            await until(lambda: status(feed).next_seq == 251)
            assert equals(feed, pool)

    run(scenario())


def test_the_loop_the_router_runs_on() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher, listening(publisher) as feed:
            await live(pool, publisher, 50)
            await until(lambda: status(feed).next_seq == 50)
            await live(pool, publisher, 20, lost=True)
            await live(pool, publisher, 1)
            await until(lambda: status(feed).next_seq == 71)
            assert equals(feed, pool)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), PATIENCE_S))


def test_a_stream_cut_and_restored_is_filled_from_the_replay_buffer() -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher, CuttableLink(publisher.endpoint) as link:
            options = replace(options_for(publisher), endpoint=link.endpoint)
            async with listening(publisher, options) as feed:
                await live(pool, publisher, 50)
                await until(lambda: status(feed).next_seq == 50)
                await link.cut()
                await until(lambda: not status(feed).connected)
                await live(pool, publisher, 50)
                await link.restore()
                # nothing is published any more: the new connection alone must make us ask
                await until(lambda: status(feed).next_seq == 100)
                assert equals(feed, pool)
                counters = status(feed).stream
                assert (counters.connects, counters.replayed, counters.resyncs, counters.restarts) == (2, 50, 0, 0)

    run(scenario())


@pytest.mark.parametrize("replay", [True, False])
def test_messages_out_of_order(replay: bool) -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher, listening(publisher, options_for(publisher, replay=replay)) as feed:
            await live(pool, publisher, 10)
            await until(lambda: status(feed).next_seq == 10)
            await live(pool, publisher, 6, lost=True)
            for at in (12, 10, 11, 15, 13, 14):
                await publisher.send(*publisher.buffer[at])
            await live(pool, publisher, 1)
            await until(lambda: status(feed).next_seq == 17)
            assert equals(feed, pool)
            assert status(feed).stream.resyncs == 0

    run(scenario())


def test_a_gap_is_filled() -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher, listening(publisher) as feed:
            await live(pool, publisher, 20)
            await until(lambda: status(feed).next_seq == 20)
            await live(pool, publisher, 30, lost=True)
            await live(pool, publisher, 1)
            await until(lambda: status(feed).next_seq == 51)
            assert equals(feed, pool)
            counters = status(feed).stream
            assert (counters.gaps, counters.resyncs) == (1, 0)
            assert counters.messages == 51

    run(scenario())


def test_the_last_messages_lost_are_found_in_the_silence() -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher, listening(publisher, watchful(publisher)) as feed:
            await live(pool, publisher, 20)
            await until(lambda: status(feed).next_seq == 20)
            await live(pool, publisher, 5, lost=True)
            await until(lambda: status(feed).next_seq == 25)
            assert equals(feed, pool)

    run(scenario())


def test_a_gap_beyond_the_replay_buffer_clears_and_begins_with_what_is_left() -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher(buffer_messages=8) as publisher, listening(publisher) as feed:
            await live(pool, publisher, 40)
            await until(lambda: status(feed).next_seq == 40)
            await live(pool, publisher, 20, lost=True)
            await live(pool, publisher, 1)
            await until(lambda: status(feed).next_seq == 61)
            assert status(feed).stream.resyncs == 1
            assert feed.index.counters.clears == 1
            slot = feed.slot(REPLICA)
            assert slot is not None
            assert {hash_ for hash_, _ in feed.index.dump(slot)} <= set(pool.held), "nothing stale is claimed"
            await publisher.publish(pool.clear())
            await live(pool, publisher, 30)
            await until(lambda: status(feed).next_seq == 92)
            assert equals(feed, pool)
            assert status(feed).stream.resyncs == 1

    run(scenario())


def test_a_gap_without_replay_clears() -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher:
            options = replace(options_for(publisher, replay=False), reorder_seconds=0.3)
            async with listening(publisher, options) as feed:
                await live(pool, publisher, 20)
                await until(lambda: status(feed).next_seq == 20)
                await live(pool, publisher, 1, lost=True)
                await publisher.publish(pool.store([1] * BLOCK * 3 + [0] * BLOCK))
                await until(lambda: status(feed).next_seq == 22)
                slot = feed.slot(REPLICA)
                assert slot is not None
                assert {hash_ for hash_, _ in feed.index.dump(slot)} <= set(pool.held)
                assert status(feed).stream.resyncs == 1

    run(scenario())


def test_messages_replayed_twice_change_nothing() -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher, listening(publisher) as feed:
            await live(pool, publisher, 30)
            await until(lambda: status(feed).next_seq == 30)
            for _ in range(2):
                for seq, payload in list(publisher.buffer):
                    await publisher.send(seq, payload)
            await until(lambda: status(feed).stream.duplicates == 60)
            assert equals(feed, pool)
            await publisher.publish(pool.evict(1000))
            await until(lambda: status(feed).next_seq == 31)
            assert status(feed).blocks == 0, "a repeated message is not another copy"
            assert status(feed).stream.restarts == 0

    run(scenario())


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("steps_after", [1, 60])
def test_a_publisher_that_starts_again_from_zero(replay: bool, steps_after: int) -> None:
    """With fewer and with more messages than before: the two lives must not be joined."""

    async def scenario() -> None:
        pool = EnginePool(seed=1)
        first = KvPublisher()
        options = options_for(first, replay=replay)
        async with listening(first, options) as feed:
            await live(pool, first, 30)
            await until(lambda: status(feed).next_seq == 30)
            await first.close()
            await until(lambda: not status(feed).connected)
            pool = EnginePool(seed=2)
            async with KvPublisher(endpoint=first.endpoint, replay=first.replay_endpoint) as second:
                await live(pool, second, steps_after - 1, lost=replay)
                await second.subscribed()
                await until(lambda: status(feed).connected)
                await live(pool, second, 1)
                await until(lambda: status(feed).next_seq == second.next_seq)
                await until(lambda: status(feed).stream.restarts + status(feed).stream.resyncs >= 1)
                if replay:
                    await until(lambda: equals(feed, pool))
                    assert status(feed).stream.restarts == 1
                slot = feed.slot(REPLICA)
                assert slot is not None
                assert {hash_ for hash_, _ in feed.index.dump(slot)} <= set(pool.held)

    run(scenario())


def test_what_cannot_be_read_is_counted_and_the_rest_continues() -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher, listening(publisher) as feed:
            await live(pool, publisher, 10)
            await publisher.send_frames(b"", b"\x00")
            await publisher.send_frames(b"", b"too short", b"x")
            for payload in (b"", b"\xc1", b"\x93\xcb", encode_batch(0.0, [])[:-3], b"\x81\xa1a\x01", b"\x91" * 3000):
                await publisher.publish_payload(payload)
            odd = BlockStored([1, 2], None, [1, 2, 3], BLOCK)  # fewer tokens than its blocks need
            await publisher.publish([odd, *pool.step()])
            await publisher.publish_payload(encode_batch(1.0, []).replace(b"\x90", b"\x92\x81\xa4type\xa3New\x05"))
            await live(pool, publisher, 10)
            await until(lambda: status(feed).next_seq == 28)
            assert equals(feed, pool)
            applied = status(feed).applied
            assert status(feed).stream.malformed_frames == 2
            assert (applied.malformed_batches, applied.malformed_events, applied.unknown_events) == (6, 2, 1)

    run(scenario())


NOT_UTF8 = b"\x93\xcb?\xf0\0\0\0\0\0\0\x91\x81\xa4ty\xffe\xa1x\x00"
NAME_NOT_UTF8 = encode_batch(1.0, [BlockStored([], None, [], BLOCK, lora_name="label")]).replace(b"label", b"la\xffel")
HUGE_BLOCKS = encode_batch(1.0, [BlockStored([], None, [], 2**63)])
EMPTY_MAPS = b"\x93\xcb?\xf0\0\0\0\0\0\0\xdd" + (1 << 20).to_bytes(4, "big") + b"\x80" * (1 << 20) + b"\x00"


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize(
    "bad",
    [NOT_UTF8, NAME_NOT_UTF8, HUGE_BLOCKS, EMPTY_MAPS],
    ids=["key not UTF-8", "name not UTF-8", "huge blocks", "empty maps"],
)
def test_a_hostile_message_costs_itself_only(bad: bytes, replay: bool) -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher:
            async with listening(publisher, options_for(publisher, replay=replay)) as feed:
                await live(pool, publisher, 10)
                await publisher.publish_payload(bad)
                await live(pool, publisher, 10)
                await until(lambda: status(feed).next_seq == 21 or status(feed).deaths > 0)
                assert status(feed).deaths == 0
                assert equals(feed, pool)
                found = status(feed)
                applied = found.applied
                assert applied.malformed_batches + applied.malformed_events == 1
                assert (found.stream.resyncs, found.stream.restarts, found.stream.gaps) == (0, 0, 0)
            if replay:
                async with listening(publisher) as later:
                    assert equals(later, pool), "the message is in the replay buffer"
                    assert status(later).deaths == 0

    run(scenario())


def test_a_router_that_starts_again_rebuilds_its_index() -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher:
            await live(pool, publisher, 1_500)
            for _ in range(2):
                async with listening(publisher) as feed:
                    assert equals(feed, pool)
                    assert status(feed).stream.joined_late == 0

    run(scenario())


def test_a_second_router_while_the_first_still_listens() -> None:
    """Also what a restart looks like to an engine that has not yet noticed the old connection's end."""

    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher:
            await live(pool, publisher, 20)
            async with listening(publisher) as first, listening(publisher) as second:
                await live(pool, publisher, 20)
                for feed in (first, second):
                    await until(partial(has_read, feed, 40))
                    assert equals(feed, pool)

    run(scenario())


def test_a_replay_endpoint_that_does_not_answer_costs_the_index_and_not_the_stream() -> None:
    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher:
            options = replace(
                options_for(publisher),
                replay_endpoint="tcp://127.0.0.1:9",
                replay_timeout_seconds=0.1,
                reorder_seconds=0.3,
            )
            async with listening(publisher, options) as feed:
                await until(lambda: status(feed).stream.replay_failures == 1)
                await live(pool, publisher, 50)
                await until(lambda: status(feed).next_seq == 50)
                assert equals(feed, pool)
                await live(pool, publisher, 1, lost=True)
                await live(pool, publisher, 1)
                await until(lambda: status(feed).next_seq == 52)
                assert status(feed).stream.resyncs == 1

    run(scenario())


@pytest.mark.parametrize("seed", range(4))
def test_any_mixture_of_faults_ends_in_the_truth(seed: int) -> None:
    async def scenario() -> None:
        pool = EnginePool(seed)
        dice = EnginePool(seed + 100).random
        publisher = KvPublisher()
        try:
            async with listening(publisher, watchful(publisher)) as feed:
                for _ in range(300):
                    draw = dice.random()
                    if draw < 0.1:
                        await live(pool, publisher, dice.randint(1, 4), lost=True)
                    elif draw < 0.15 and publisher.buffer:
                        await publisher.send(*dice.choice(publisher.buffer))
                    elif draw < 0.17:
                        await publisher.publish(pool.clear())
                    elif draw < 0.18:
                        await publisher.close()
                        endpoints = (publisher.endpoint, publisher.replay_endpoint)
                        publisher = KvPublisher(endpoint=endpoints[0], replay=endpoints[1])
                        pool = EnginePool(dice.randrange(1000))
                    else:
                        await live(pool, publisher, 1)
                await until(lambda: status(feed).next_seq == publisher.next_seq and equals(feed, pool))
        finally:
            await publisher.close()

    run(scenario())


def test_replicas_come_and_go() -> None:
    async def scenario() -> None:
        pools = [EnginePool(seed) for seed in range(3)]
        publishers = [KvPublisher() for _ in pools]
        feed = EventFeed(BlockIndex())
        try:
            slots = [feed.add(f"r{i}", options_for(publisher)) for i, publisher in enumerate(publishers)]
            with pytest.raises(ConfigurationError, match="r0"):
                feed.add("r0", options_for(publishers[0]))
            await asyncio.gather(*(live(pool, one, 100) for pool, one in zip(pools, publishers, strict=True)))
            await until(lambda: all(one.next_seq == 100 for one in feed.statuses()))
            for slot, pool in zip(slots, pools, strict=True):
                assert {hash_ for hash_, _ in feed.index.dump(slot)} == set(pool.held)
            await feed.remove("r1")
            await feed.remove("never there")
            assert feed.slot("r1") is None
            assert [one.replica for one in feed.statuses()] == ["r0", "r2"]
            assert feed.index.distinct_blocks() > 0
            assert feed.add("r3", options_for(publishers[1])) == slots[1]
            await until(lambda: feed.index.blocks(slots[1]) == len(pools[1].held))
        finally:
            await feed.close()
            for publisher in publishers:
                await publisher.close()
        assert feed.index.distinct_blocks() == 0
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("kv-events")]

    run(scenario())


def test_without_a_replay_endpoint_a_new_connection_is_believed_to_be_a_new_engine() -> None:
    """The engine restarts and its sequence numbers happen to continue from ours: nothing in the stream shows it."""

    async def scenario() -> None:
        pool = EnginePool()
        async with KvPublisher() as publisher, CuttableLink(publisher.endpoint) as link:
            options = replace(options_for(publisher, replay=False), endpoint=link.endpoint)
            async with listening(publisher, options) as feed:
                await live(pool, publisher, 20)
                await until(lambda: status(feed).next_seq == 20)
                assert status(feed).blocks > 0
                await link.cut()
                await until(lambda: not status(feed).connected)
                pool.clear()  # another life: empty, and silent about it
                await link.restore()
                await until(lambda: status(feed).connected)
                assert equals(feed, pool)
                await publisher.subscribed()
                await live(pool, publisher, 20)
                await until(lambda: status(feed).next_seq == 40)
                assert equals(feed, pool)
                assert status(feed).stream.restarts == 1

    run(scenario())
