"""The NATS feed over a client that never answers for some: who waits, who does not, and who leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.semblend.donors.announcements import KEY, announced, batch, words
from tests.waiting import PATIENCE_S

from sembase.event_batch import published_s
from sembase.ordered_stream import END, Message, OrderedStream, ResetReason
from semblend.contract.donor_event import DonorBatch, DonorEvent, GenerationReset
from semblend.donors.packing import frame, is_snapshot, pack
from semblend.integration.dynamo import nats_feed
from semblend.integration.dynamo.nats_feed import ByteBudget, NatsDonorFeed, Publisher
from semblend.integration.dynamo.nats_subjects import PUBLISHER_HEADER, events_subject, replay_subject
from semblend.integration.dynamo.provider import SemanticEvidenceProvider

TOKENS = words(1, 300)
SHORT = words(2, 70)


class Taken:
    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    async def deliver(self, payload: bytes) -> None:
        self.payloads.append(payload)

    def reset(self, reason: ResetReason) -> None:
        self.payloads.clear()


class Inbox:
    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()

    async def next_msg(self, timeout: float) -> Any:
        return await self.queue.get()

    async def unsubscribe(self) -> None:
        pass


class Client:
    """Workers in ``published`` are answered for at once; all others are mute."""

    def __init__(self, published: dict[int, list[DonorBatch]]) -> None:
        self.published = published
        self.asked: list[str] = []
        self._inboxes: dict[str, Inbox] = {}

    def new_inbox(self) -> str:
        return f"inbox{len(self._inboxes)}"

    async def subscribe(self, subject: str) -> Inbox:
        self._inboxes[subject] = Inbox()
        return self._inboxes[subject]

    async def publish(self, subject: str, data: bytes, reply: str) -> None:
        self.asked.append(subject)
        for worker_id, batches in self.published.items():
            if subject != replay_subject(str(worker_id)):
                continue
            headers = {PUBLISHER_HEADER: str(worker_id)}
            for number, published in enumerate(batches):
                self._inboxes[reply].queue.put_nowait(
                    SimpleNamespace(data=frame(number, pack(published)), headers=headers, subject=reply)
                )
            self._inboxes[reply].queue.put_nowait(SimpleNamespace(data=END, headers=headers, subject=reply))

    async def close(self) -> None:
        pass


def message(worker_id: int, sequence: int, *events: DonorEvent) -> Any:
    return repeated(worker_id, sequence, batch(*events))


def repeated(worker_id: int, sequence: int, published: DonorBatch) -> Any:
    return SimpleNamespace(subject=events_subject(str(worker_id)), data=frame(sequence, pack(published)))


def opened(published: dict[int, list[DonorBatch]] | None = None) -> tuple[NatsDonorFeed, SemanticEvidenceProvider]:
    provider = SemanticEvidenceProvider(KEY)
    feed = NatsDonorFeed("nats://unused", provider)
    feed._client = Client(published or {})
    return feed, provider


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(bounded())


def test_a_mute_publisher_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_feed, "REPLAY_S", 1_000.0)  # a caller that waits for it is not done within the test

    async def scene() -> None:
        late = announced("b", words(2, 300))
        published = [batch(GenerationReset(1)), batch(announced("a", TOKENS)), batch(late)]
        feed, provider = opened({2: published})
        try:
            async with asyncio.timeout(PATIENCE_S):
                await feed._received(message(1, 5, announced("x", TOKENS)))  # a gap that is never filled
                await feed._received(message(3, 0, GenerationReset(1), announced("c", TOKENS)))
                assert provider.donors((3, 0)) == ["c"]
                await feed._received(repeated(2, 2, published[2]))  # a gap that is filled
                while len(provider.index) < 3:
                    await asyncio.sleep(0)
            stream = feed.stream_of(2)
            assert stream is not None
            assert (stream.next_seq, stream.is_incomplete) == (3, False)
        finally:
            await feed.close()

    run(scene())


def test_more_publishers_than_are_followed_may_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_feed, "MAX_PUBLISHERS", 3)

    async def scene() -> None:
        feed, provider = opened()
        try:
            for worker_id in range(8):
                await feed._received(message(worker_id, 0, GenerationReset(1), announced("d", TOKENS)))
                await feed._received(message(0, worker_id + 1, GenerationReset(1), announced("d", TOKENS)))
            assert {worker_id for worker_id in range(8) if provider.donors((worker_id, 0))} == {0, 6, 7}, (
                "who speaks stays"
            )
            assert feed.stream_of(5) is None
            assert feed.dropped == 5
        finally:
            await feed.close()

    run(scene())


def test_a_publisher_that_leaves_takes_its_question_with_it() -> None:
    async def scene() -> None:
        feed, _ = opened()
        await feed._received(message(1, 5, announced("x", TOKENS)))
        await asyncio.sleep(0)
        feed.leave(1)
        await feed.close()
        assert feed._budget.used_bytes == 0
        assert len(asyncio.all_tasks()) == 1

    run(scene())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 6), st.integers(1, 600), st.integers(0, 10))
def test_all_messages_are_known_in_the_end_whatever_was_missed_or_waited(
    arrives: list[bool], max_waiting: int, max_bytes: int, answered_after: int
) -> None:
    published = [pack(batch(GenerationReset(1), at=0.0))] + [
        pack(batch(announced(f"d{n}", SHORT), at=float(n + 1))) for n in range(len(arrives))
    ]

    async def scene() -> None:
        sink = Taken()
        sent = 0

        async def replay(start: int) -> AsyncGenerator[Message, None]:
            for _ in range(answered_after):
                await asyncio.sleep(0)
            for n in range(start, sent):
                yield Message(n, published[n])

        budget = ByteBudget(max_bytes)
        stream = OrderedStream(sink, stamp=published_s, replay=replay, is_snapshot=is_snapshot)
        publisher = Publisher(stream, budget)
        for number, arrived in enumerate([*arrives, True]):
            sent = number + 1
            if arrived:
                publisher.received(Message(number, published[number]))
                assert budget.used_bytes <= max_bytes
            await asyncio.sleep(0)
        while not publisher.is_idle:
            await asyncio.sleep(0)
        assert sink.payloads == published
        assert budget.used_bytes == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nats_feed, "MAX_WAITING", max_waiting)
        run(scene())


def test_a_server_that_cannot_be_reached_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_feed, "START_S", 0.2)

    async def scene() -> None:
        feed = NatsDonorFeed("nats://127.0.0.1:1", SemanticEvidenceProvider(KEY))
        with pytest.raises(ConnectionError, match="no NATS server"):
            await feed.start()
        await feed.close()

    run(scene())
