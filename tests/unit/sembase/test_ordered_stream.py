"""Numbered messages: next, known, after a gap, or of a restarted publisher; and a sink that is never wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sembase.ordered_stream import REMEMBERED, Message, OrderedStream, ReplayError, ResetReason, SequencePosition


def stamp(payload: bytes) -> float | None:
    return float(payload) if payload.isdigit() else None


def taken(count: int) -> SequencePosition:
    """A position behind messages 0 .. count - 1, each with its time as its content."""
    position = SequencePosition(stamp)
    for seq in range(count):
        position.take(seq, str(1_000 + seq).encode())
    return position


def test_the_first_is_whatever_comes_first() -> None:
    position = SequencePosition(stamp)
    assert position.judge(17, b"x") == "first"
    position.take(17, b"x")
    assert position.next_seq == 18


def test_next_gap_and_duplicate() -> None:
    position = taken(10)
    assert position.judge(10, b"1010") == "next"
    assert position.judge(12, b"1012") == "gap"
    assert position.judge(4, b"1004") == "duplicate"


def test_a_number_with_other_content_is_a_new_life_whatever_the_clock_says() -> None:
    assert taken(10).judge(0, b"5") == "restart"
    assert taken(10).judge(9, b"unreadable") == "restart"


def test_beyond_our_memory_the_publishers_clock_decides() -> None:
    position = taken(REMEMBERED + 100)
    assert position.judge(3, b"1003") == "duplicate"
    assert position.judge(3, b"999999") == "restart"


def test_after_forgetting_everything_is_first() -> None:
    position = taken(10)
    position.forget()
    assert position.judge(3, b"1003") == "first"
    assert not position.is_known(3, b"1003")
    position.begin(0)
    assert position.judge(0, b"1") == "next"
    assert position.judge(2, b"1") == "gap"


class Publisher:
    """Adds and drops names; numbers no life's messages where another life's stopped. Keeps the last ``kept`` messages.

    A payload is ``time:change``; ``=`` before names repeats the whole state, as after a reader missed too much.
    """

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.clock = 0
        self.is_mute = False
        self.must_repeat = False
        self.restart()

    def restart(self) -> None:
        self.sent: list[bytes] = []
        self.first = 1_000 * self.clock
        self.living: set[str] = set()
        self.repeat()

    def _send(self, change: str) -> Message:
        self.clock += 1
        self.sent.append(f"{self.clock}:{change}".encode())
        return Message(self.first + len(self.sent) - 1, self.sent[-1])

    def add(self, name: str) -> Message:
        self.living.add(name)
        return self._send(f"+{name}")

    def drop(self, name: str) -> Message:
        self.living.discard(name)
        return self._send(f"-{name}")

    def repeat(self) -> Message:
        return self._send("=" + "".join(sorted(self.living)))

    async def replay(self, start: int) -> AsyncGenerator[Message, None]:
        if self.is_mute:
            raise ReplayError("mute")
        oldest = self.first + max(0, len(self.sent) - self.kept)
        self.must_repeat |= max(start, self.first) < oldest
        for seq, payload in list(enumerate(self.sent, self.first)):
            if seq >= max(start, oldest):
                yield Message(seq, payload)


class Names:
    def __init__(self) -> None:
        self.known: set[str] = set()
        self.may_apply = asyncio.Event()
        self.may_apply.set()

    async def deliver(self, payload: bytes) -> None:
        await self.may_apply.wait()
        change = payload.decode().partition(":")[2]
        if change[0] == "=":
            self.known = set(change[1:])
        elif change[0] == "+":
            self.known.add(change[1:])
        else:
            self.known.discard(change[1:])

    def reset(self, reason: ResetReason) -> None:
        self.known.clear()


def time_of(payload: bytes) -> float | None:
    return float(payload.partition(b":")[0])


class Follower:
    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.names = Names()
        self.now = 0.0
        self.stream = OrderedStream(
            self.names,
            stamp=time_of,
            replay=publisher.replay,
            is_snapshot=lambda payload: b":=" in payload,
            clock=lambda: self.now,
        )

    @property
    def known(self) -> set[str]:
        return self.names.known

    async def receive(self, message: Message) -> None:
        await self.stream.receive(message)
        if self.publisher.must_repeat:
            self.publisher.must_repeat = False
            await self.stream.receive(self.publisher.repeat())


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["add", "drop", "restart"]), st.booleans()), max_size=40
    ),
    st.integers(1, 6),
)
@example([("a", "drop", True), ("a", "restart", False), ("a", "add", False), ("b", "add", True)], 2)
def test_what_is_known_is_true_whatever_was_missed(steps: list[tuple[str, str, bool]], kept: int) -> None:
    async def scenario() -> None:
        publisher = Publisher(kept)
        follower = Follower(publisher)
        for name, what, arrives in steps:
            if what == "restart":
                publisher.restart()
                message = Message(publisher.first, publisher.sent[0])
            else:
                message = publisher.add(name) if what == "add" else publisher.drop(name)
            if arrives:
                await follower.receive(message)
                assert follower.known == publisher.living

    asyncio.run(scenario())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.booleans(), st.booleans(), st.booleans(), st.floats(0, 20)), max_size=40
    )
)
def test_a_publisher_that_answers_no_replay_is_never_believed_too_much_and_known_whole_once_it_answers(
    steps: list[tuple[str, bool, bool, bool, float]],
) -> None:
    async def scenario() -> None:
        publisher = Publisher(kept=1_000)
        follower = Follower(publisher)
        for name, adds, arrives, publisher.is_mute, waited in steps:
            follower.now += waited
            message = publisher.add(name) if adds else publisher.drop(name)
            if arrives:
                await follower.receive(message)
                if not follower.stream.is_holding:
                    assert follower.known <= publisher.living
        publisher.is_mute = False
        follower.now += 10_000.0
        await follower.receive(publisher.add("z"))
        assert follower.known == publisher.living

    asyncio.run(scenario())


def test_a_replay_that_never_comes_costs_what_was_known_until_the_state_is_repeated() -> None:
    async def scenario() -> None:
        publisher = Publisher(kept=10)
        follower = Follower(publisher)
        await follower.receive(Message(0, publisher.sent[0]))
        await follower.receive(publisher.add("a"))
        publisher.add("b")
        publisher.is_mute = True
        await follower.receive(publisher.add("c"))
        assert follower.known == {"c"}
        assert follower.stream.is_incomplete
        follower.now += 1_000.0
        await follower.receive(publisher.add("d"))
        assert follower.known == {"c", "d"}
        await follower.receive(publisher.repeat())
        assert follower.known == {"a", "b", "c", "d"}
        assert not follower.stream.is_incomplete

    asyncio.run(scenario())


def test_a_message_that_is_being_applied_is_not_part_of_a_position() -> None:
    """A state saved now would hold a part of it."""

    async def scenario() -> None:
        publisher = Publisher(kept=10)
        follower = Follower(publisher)
        await follower.receive(Message(0, publisher.sent[0]))
        before = follower.stream.position()
        follower.names.may_apply.clear()
        receiving = asyncio.create_task(follower.receive(publisher.add("a")))
        await asyncio.sleep(0)
        assert follower.stream.position() is None
        follower.names.may_apply.set()
        await receiving
        after = follower.stream.position()
        assert before is not None
        assert after is not None
        assert after[0] == before[0] + 1

    asyncio.run(scenario())


def test_a_silent_publisher_is_requested_less_and_less_often() -> None:
    async def scenario() -> None:
        publisher = Publisher(kept=10)
        follower = Follower(publisher)
        publisher.is_mute = True
        publisher.add("a")
        for _ in range(1_000):
            follower.now += 1.0
            await follower.receive(publisher.add("b"))
        assert follower.stream.counters.replay_failures <= 10

    asyncio.run(scenario())


def test_a_start_without_the_publishers_whole_state_is_requested_again_until_it_comes() -> None:
    async def scenario() -> None:
        publisher = Publisher(kept=1)
        follower = Follower(publisher)
        for name in "abc":
            publisher.add(name)
        await follower.stream.receive(publisher.add("d"))
        publisher.must_repeat = False  # as when it repeated its state to another reader a moment ago
        assert follower.known == {"d"}
        assert follower.stream.is_incomplete
        await follower.receive(publisher.add("e"))
        assert follower.known == {"d", "e"}
        follower.now += 10.0
        await follower.receive(publisher.add("f"))
        assert follower.known == publisher.living
        assert not follower.stream.is_incomplete

    asyncio.run(scenario())


def test_a_position_is_resumed_in_another_process_with_the_same_publisher_only() -> None:
    position = taken(10)
    resumed = SequencePosition(stamp)
    resumed.resume(10, position.newest_digest())
    assert resumed.newest_digest() == position.newest_digest()
    assert resumed.is_known(9, b"1009")
    assert not resumed.is_known(9, b"of another publisher")
    assert resumed.judge(10, b"1010") == "next"
    resumed.take(10, b"1010")
    assert resumed.newest_digest() != position.newest_digest()
    resumed.forget()
    assert not resumed.is_known(9, b"1009")
