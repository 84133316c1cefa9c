"""Where a stream stands: next, known, beyond a gap, or of a new life."""

from __future__ import annotations

import pytest

from sembase.errors import ConfigurationError
from semgate.events.sequence import REMEMBERED, SequencePosition
from semgate.events.subscriber import StreamOptions


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


@pytest.mark.parametrize("endpoint", ["tcp://*:5557", "10.0.0.7:5557", "tcp://host", "tcp://host:0", "http://h:1", ""])
def test_an_endpoint_nobody_can_connect_to_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="write it like tcp://"):
        StreamOptions(endpoint)
    with pytest.raises(ConfigurationError, match="write it like tcp://"):
        StreamOptions("tcp://host:5557", endpoint)
    assert StreamOptions("tcp://[::1]:5557", "ipc:///tmp/events").topic == ""
