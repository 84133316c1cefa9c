from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from semblend.contract import TokenRange
from semblend.integration.core.open_request import in_passes


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40)), max_size=12),
    st.integers(1, 6),
    st.integers(1, 50),
)
def test_passes_cover_every_position_once_in_order_and_none_is_too_large(
    gaps_and_lengths: list[tuple[int, int]], max_rows: int, max_tokens: int
) -> None:
    ranges, at = [], 0
    for gap, length in gaps_and_lengths:
        ranges.append(TokenRange(at + gap, at + gap + length))
        at += gap + length
    made = list(in_passes(ranges, max_tokens, max_rows))
    positions = [position for group in made for part in group for position in range(part.start, part.end)]
    assert positions == [position for part in ranges for position in range(part.start, part.end)]
    for group in made:
        assert 0 < len(group) <= max_rows
        assert 0 < sum(len(part) for part in group) <= max_tokens


def test_a_claim_as_long_as_four_steps_takes_four() -> None:
    assert [len(group) for group in in_passes([TokenRange(16, 416)], 100, 8)] == [1, 1, 1, 1]


def test_without_a_limit_of_rows_every_pass_but_the_last_is_full() -> None:
    ranges = [TokenRange(at, at + 3) for at in range(0, 40, 4)]
    assert [sum(map(len, group)) for group in in_passes(ranges, 7)] == [7, 7, 7, 7, 2]
