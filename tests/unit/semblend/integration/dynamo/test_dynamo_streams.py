from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.semblend.donors.announcements import KEY, announced, batch, words

from sembase.errors import ConfigurationError
from semblend.contract.donor_event import DonorAnnounced, DonorBatch, DonorEventError, DonorWithdrawn, GenerationReset
from semblend.donors.packing import frame, pack, unframe, unpack
from semblend.integration.announce import DonorAnnouncer
from semblend.integration.border import Border
from semblend.integration.donor_socket import DonorSocket
from semblend.integration.dynamo.donor_stream import DonorStream
from semblend.integration.dynamo.nats_subjects import events_subject, publisher_of, replay_subject
from semblend.integration.dynamo.provider import SemanticEvidenceProvider
from semblend.integration.dynamo.zmq_feed import ZmqDonorFeed

LOG = logging.getLogger("dynamo streams")
TOKENS = words(1, 300)


class Publisher:
    """What an announcer says, with the donors that are true after each message."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.restart()

    def restart(self) -> None:
        self.sent: list[DonorBatch] = []
        self.first = 1_000 * int(self.clock)  # as a publisher numbers: no run goes on where another stopped
        self.living: set[str] = set()
        self.say(GenerationReset(int(self.clock)))

    def say(self, *events: DonorAnnounced | DonorWithdrawn | GenerationReset) -> int:
        self.clock += 1.0
        self.sent.append(batch(*events, at=self.clock))
        return self.first + len(self.sent) - 1

    def add(self, name: str) -> int:
        self.living.add(name)
        return self.say(announced(name, TOKENS))

    def drop(self, name: str) -> int:
        self.living.discard(name)
        return self.say(DonorWithdrawn(name, "x"))

    def tell_all(self) -> int:
        return self.say(GenerationReset(int(self.clock)), *(announced(name, TOKENS) for name in sorted(self.living)))


class Follower:
    def __init__(self) -> None:
        self.donors: set[str] = set()
        self.stream = DonorStream(self.apply, self.donors.clear, clock_s=lambda: 0.0)

    def apply(self, message: DonorBatch) -> None:
        for event in message.events:
            match event:
                case GenerationReset():
                    self.donors.clear()
                case DonorAnnounced(donor_id=donor_id):
                    self.donors.add(donor_id)
                case DonorWithdrawn(donor_id=donor_id):
                    self.donors.discard(donor_id)

    def hear(self, publisher: Publisher, sequence: int, kept: int) -> None:
        """A live message, and the replay it asks for out of the last ``kept`` messages; told all when that lacks."""
        first = publisher.first
        start = self.stream.live(sequence, publisher.sent[sequence - first])
        if start is None:
            return
        oldest = first + max(0, len(publisher.sent) - kept)
        sent = list(enumerate(publisher.sent, first))
        self.stream.replayed([(n, batch) for n, batch in sent if n >= max(start, oldest)])
        if max(start, first) < oldest:
            told = publisher.tell_all()
            self.stream.live(told, publisher.sent[told - first])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["add", "drop", "restart"]), st.booleans()), max_size=40
    ),
    st.integers(1, 6),
)
@example([("a", "drop", True), ("a", "restart", False), ("a", "add", False), ("b", "add", True)], 2)
def test_what_is_believed_is_true_whatever_was_missed(steps: list[tuple[str, str, bool]], kept: int) -> None:
    publisher, follower = Publisher(), Follower()
    for name, what, arrives in steps:
        if what == "restart":
            publisher.restart()
            sequence = publisher.first
        else:
            sequence = publisher.add(name) if what == "add" else publisher.drop(name)
        if arrives:
            follower.hear(publisher, sequence, kept)
            assert follower.donors == publisher.living or (not follower.donors and follower.stream.is_lost)
    publisher.restart()
    publisher.add("z")
    for number in (0, 1):
        follower.hear(publisher, publisher.first + number, kept=100)
    assert follower.donors == {"z"}


def test_a_replay_that_never_comes_empties_the_worker_until_it_tells_all() -> None:
    publisher, follower = Publisher(), Follower()
    follower.hear(publisher, 0, 10)
    follower.hear(publisher, publisher.add("a"), 10)
    publisher.add("b")
    missed = publisher.add("c")
    assert follower.stream.live(missed, publisher.sent[missed]) == 2
    follower.stream.unanswered()
    assert not follower.donors
    told = publisher.tell_all()
    assert follower.stream.live(told, publisher.sent[told]) is None
    assert follower.donors == {"a", "b", "c"}


def test_frames_round_trip_and_rubbish_is_refused() -> None:
    said = batch(announced("d", TOKENS), DonorWithdrawn("e", "x"), rank=3)
    sequence, payload = unframe(frame(7, pack(said)))
    assert (sequence, unpack(payload)) == (7, said)
    for rubbish in (b"", b"\xc1", b"\x93", b"\x80"):
        with pytest.raises(DonorEventError):
            unpack(rubbish)
    with pytest.raises(DonorEventError):
        unframe(b"short")


def test_subjects_are_one_token_per_publisher() -> None:
    assert publisher_of(events_subject("1234")) == "1234"
    assert not replay_subject("1234").startswith("semantic-kv-events."), "those who follow everybody hear requests"
    for name in ("", "a.b", "*", ">", "a b", "x" * 65):
        with pytest.raises(ConfigurationError):
            events_subject(name)


async def until(holds: object, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # type: ignore[operator]
            await asyncio.sleep(0.01)


def test_zeromq_brings_live_events_and_what_was_said_before() -> None:
    """Real sockets on loopback, the announcer of the adapters at one end, the provider's index at the other."""
    opened: list[DonorSocket] = []

    def open_socket() -> DonorSocket:
        opened.append(DonorSocket("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", 100))
        return opened[0]

    async def run() -> None:
        announcer = DonorAnnouncer(open_socket, KEY, Border(lambda _: None, LOG))
        provider = SemanticEvidenceProvider(KEY)
        feed = ZmqDonorFeed(provider)
        try:
            announcer.loadable("early", TOKENS, None, None)
            await until(lambda: bool(opened))
            feed.follow(5, *opened[0].endpoints)
            await until(lambda: len(provider.index) == 1)
            announcer.loadable("late", words(2, 300), None, None)
            announcer.withdrawn("early", "x")
            await until(lambda: provider.donors((5, 0)) == ["late"])
            stream = feed.stream_of(5)
            assert stream is not None
            assert not stream.is_lost
        finally:
            await asyncio.to_thread(announcer.close)
            await feed.close()
        assert len(provider.index) == 0

    asyncio.run(run())


def test_a_feed_that_lost_its_worker_holds_none_of_its_donors() -> None:
    async def run() -> None:
        provider = SemanticEvidenceProvider(KEY)
        provider.apply(5, batch(announced("d", TOKENS)))
        feed = ZmqDonorFeed(provider)
        try:
            feed.leave(5)
            assert len(provider.index) == 0
        finally:
            await feed.close()

    asyncio.run(run())
