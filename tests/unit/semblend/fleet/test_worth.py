"""A fetch that would take longer than prefill is refused; a store that recovers is used again."""

from __future__ import annotations

import pytest
from tests.clock import Clock

from semblend.fleet.worth import PROBE_SECONDS, FetchWorth


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worth(clock: Clock) -> FetchWorth:
    return FetchWorth(clock)


def test_unmeasured_speeds_do_not_refuse(worth: FetchWorth) -> None:
    assert worth.is_worth(1 << 40, 1.0), "the first fetch measures"
    worth.was_read(1, 100.0)
    assert worth.is_worth(1 << 40, 0.0), "what prefill takes is not known"
    assert not worth.is_worth(1 << 40, 1.0)


@pytest.mark.parametrize(("read_bytes", "is_worth"), [(900_000, True), (1_100_000, False)])
def test_the_faster_way_wins(worth: FetchWorth, read_bytes: int, is_worth: bool) -> None:
    worth.was_read(1_000_000, 1.0)  # one megabyte per second
    assert worth.is_worth(read_bytes, 1_000) == is_worth


def test_a_store_that_slows_down_is_noticed_within_a_few_fetches(worth: FetchWorth) -> None:
    for _ in range(50):
        worth.was_read(10_000_000, 1.0)
    assert worth.is_worth(1_000_000, 1_000)
    for _ in range(5):
        worth.was_read(1_000_000, 10.0)
    assert not worth.is_worth(1_000_000, 1_000)


def test_a_slow_store_is_probed_once_in_a_while_and_used_again_when_it_is_fast(worth: FetchWorth, clock: Clock) -> None:
    worth.was_read(1_000, 10.0)
    assert not worth.is_worth(1_000_000, 1_000)
    clock.now = PROBE_SECONDS
    assert worth.is_worth(1_000_000, 1_000)
    assert not worth.is_worth(1_000_000, 1_000), "one probe at a time"
    for _ in range(3):
        worth.was_read(100_000_000, 1.0)
    assert worth.is_worth(1_000_000, 1_000)
