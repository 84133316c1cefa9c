"""Which answers are repaired and in which steps, by policy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend.integration.core.repair_schedule import RepairSchedule, continues
from semblend.integration.core.session_returns import BLOCK_TOKENS, block_hashes
from semblend.integration.shared_options import BUSY_STEPS_PER_SLICE, RepairPolicy

TOKENS = st.lists(st.integers(0, 3), max_size=3 * BLOCK_TOKENS)


def test_off_repairs_nothing() -> None:
    schedule = RepairSchedule("off")
    schedule.answered(b"a", "stop")
    assert not schedule.is_on
    assert not schedule.is_worth_it("stop")


@pytest.mark.parametrize(
    ("policy", "end", "wanted"), [("idle", "abort", True), ("likely", "abort", False), ("likely", "stop", True)]
)
def test_likely_asks_whether_the_session_returns(policy: RepairPolicy, end: str, wanted: bool) -> None:
    schedule = RepairSchedule(policy)
    assert schedule.is_worth_it(end) is wanted


def test_busy_steps_have_room_under_likely_only_and_rarely() -> None:
    for policy, expected in (("idle", 0), ("likely", 3)):
        schedule, slices = RepairSchedule(policy), 0  # type: ignore[arg-type]
        for _ in range(3 * BUSY_STEPS_PER_SLICE):
            if schedule.has_room(idle=False):
                schedule.ran()
                slices += 1
        assert slices == expected
        assert schedule.has_room(idle=True)


@given(TOKENS, TOKENS)
def test_a_later_turn_is_the_earlier_one_continued(one: list[int], other: list[int]) -> None:
    later, earlier = np.array(one, np.uint32), np.array(other, np.uint32)
    assert continues(later, earlier) == (one[: len(other)] == other)


@given(TOKENS, TOKENS)
def test_block_hashes_are_equal_as_far_as_the_blocks_are(one: list[int], other: list[int]) -> None:
    left, right = (block_hashes(np.array(tokens, np.uint32), "tenant") for tokens in (one, other))
    assert len(left) == len(one) // BLOCK_TOKENS
    for number, pair in enumerate(zip(left, right, strict=False)):
        end = (number + 1) * BLOCK_TOKENS
        assert (pair[0] == pair[1]) == (one[:end] == other[:end])


def test_block_hashes_of_two_tenants_have_nothing_in_common() -> None:
    tokens = np.zeros(2 * BLOCK_TOKENS, np.uint32)
    assert not set(block_hashes(tokens, "one")) & set(block_hashes(tokens, "other"))
