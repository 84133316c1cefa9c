"""What placement remembers between decisions is bounded, and forgets in the order it says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from semgate.placement.affinity import SessionHomes
from semgate.placement.overlap import ContentHistory
from semgate.placement.replication import HotPrefixes


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=300), st.integers(1, 20))
def test_homes_keep_the_latest_sessions_only(sessions: list[int], most: int) -> None:
    homes = SessionHomes(max_sessions=most)
    for number in sessions:
        homes.note("tenant", str(number), f"replica-{number}", number, 0.0)
    latest = list(dict.fromkeys(reversed(sessions)))[:most]
    assert len(homes) == len(latest)
    for number in set(sessions):
        found = homes.find("tenant", str(number), 0.0)
        assert (found is not None) == (number in latest)
        assert found is None or found.replica == f"replica-{number}"


def test_homes_leave_with_time_and_no_session_has_none() -> None:
    homes = SessionHomes(keep_s=10.0)
    homes.note("tenant", "old", "replica", 5, 0.0)
    homes.note("tenant", None, "replica", 5, 0.0)
    assert homes.find("tenant", "old", 11.0) is None
    homes.note("tenant", "new", "replica", 5, 11.0)
    assert len(homes) == 1
    assert homes.find("tenant", None, 11.0) is None
    with pytest.raises(ConfigurationError):
        SessionHomes(max_sessions=0)


def test_tenants_do_not_share_sessions() -> None:
    homes = SessionHomes()
    homes.note("a", "session", "replica-1", 5, 0.0)
    assert homes.find("b", "session", 0.0) is None


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=400), st.integers(1, 10), st.integers(1, 6))
def test_hot_prefixes_are_bounded_in_room_and_copies(keys: list[int], most: int, copies: int) -> None:
    hot = HotPrefixes(most, copies, half_life=64)
    for key in keys:
        hot.advance()
        hot.note(key)
        assert len(hot) <= most
        assert 1 <= hot.copies(key, 64) <= copies
        assert hot.copies(key, 1) == 1


def test_a_prefix_is_hot_while_it_is_asked_for_and_cools_down() -> None:
    hot = HotPrefixes(1_000, 4, half_life=50)
    for number in range(400):
        hot.advance()
        hot.note(1 if number % 2 else 1_000 + number)
    assert hot.request_fraction(1) == pytest.approx(0.5, abs=0.05)
    assert hot.copies(1, 16) == 4
    for number in range(400):
        hot.advance()
        hot.note(5_000 + number)
    assert hot.request_fraction(1) < 0.01
    assert hot.copies(1, 16) == 1


def test_counts_survive_many_more_requests_than_a_float_can_count() -> None:
    hot = HotPrefixes(10, 4, half_life=1)
    for _ in range(2_000):
        hot.advance()
        hot.note(7)
    assert 0.4 < hot.request_fraction(7) <= 1.01


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 80)), max_size=200), st.integers(0, 80))
def test_content_history_forgets_a_replica_wholly(notes: list[tuple[int, int]], slot: int) -> None:
    history = ContentHistory(16)
    for key, where in notes:
        history.note(key, where)
    assert len(history) <= 16
    before = {key: history.holders(key) for key in range(31)}
    history.forget(slot)
    assert {key: history.holders(key) for key in range(31)} == {
        key: holders & ~(1 << slot) for key, holders in before.items()
    }


def test_a_session_costs_the_same_however_long_its_id_is() -> None:
    homes = SessionHomes(max_sessions=8)
    for number in range(8):
        homes.note("t" * 50_000, f"{number}" + "s" * 50_000, "a", 1, 0.0)
    assert sum(len(key) for key in homes._homes) == 8 * 16
    found = homes.find("t" * 50_000, "3" + "s" * 50_000, 0.0)
    assert found is not None
    assert homes.find("t" * 49_999, "ts" + "s" * 49_999, 0.0) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=60), st.integers(0, 3))
def test_forgetting_a_replica_leaves_the_others_as_they_were(noted: list[tuple[int, int]], slot: int) -> None:
    history = ContentHistory(100)
    for key, holder in noted:
        history.note(key, holder)
    before = {key: history.holders(key) for key, _ in noted}
    history.forget(slot)
    assert {key: history.holders(key) for key in before} == {key: held & ~(1 << slot) for key, held in before.items()}
    assert len(history) == sum(1 for held in before.values() if held & ~(1 << slot))
