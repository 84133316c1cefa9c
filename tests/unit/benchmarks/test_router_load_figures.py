"""The figures of the router benchmarks: slopes, differences within a round, prompts that repeat as the trace says."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks.estimates import median_and_range
from benchmarks.router.fleet.turns import Turn, best_hit_share, body_of, prompt_of
from benchmarks.router.load.rounds import added_ms, failures
from benchmarks.router.load.soak import memory
from benchmarks.router.upstreams import END, TOKEN, stream_body
from hypothesis import given
from hypothesis import strategies as st


def turn(ids: list[int], tokens: int, block_tokens: int = 64) -> Turn:
    return Turn(0.0, "s", np.array(ids, np.uint64), block_tokens, tokens, 4)


@given(
    st.lists(st.integers(0, 1 << 40), min_size=1, max_size=6),
    st.lists(st.integers(0, 1 << 40), min_size=1, max_size=6),
    st.integers(0, 1000),
)
def test_equal_blocks_give_equal_tokens_at_any_position(left: list[int], right: list[int], salt: int) -> None:
    one, two = prompt_of(turn(left, 64 * len(left)), salt), prompt_of(turn(right, 64 * len(right)), salt)
    for i, first in enumerate(left):
        for j, second in enumerate(right):
            same = bool((one[64 * i : 64 * i + 64] == two[64 * j : 64 * j + 64]).all())
            assert same == (first == second)


def test_another_salt_gives_other_tokens_in_every_block() -> None:
    ids = list(range(50))
    one, two = (prompt_of(turn(ids, 64 * 50), salt).reshape(50, 64) for salt in (1, 2))
    assert not (one == two).all(axis=1).any()


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=5), st.integers(1, 64), st.integers(0, 99))
def test_a_body_carries_exactly_the_prompt(ids: list[int], last: int, salt: int) -> None:
    asked = turn(ids, 64 * (len(ids) - 1) + last)
    body = json.loads(body_of(asked, "mock", salt))
    assert body["prompt"] == prompt_of(asked, salt).tolist()
    assert len(body["prompt"]) == asked.prompt_tokens
    assert min(body["prompt"]) >= 10_000
    assert max(body["prompt"]) < 49_152


def test_only_leading_repeats_count_as_hits() -> None:
    turns = [turn([1, 2, 3], 192), turn([1, 2, 9], 192), turn([9, 2, 3], 192)]
    assert best_hit_share(turns) == pytest.approx(2 / 9)


def test_the_slope_leaves_out_the_warm_up() -> None:
    rising = [(float(s), 100_000_000 + (50_000_000 if s < 20 else 0) + 1_000_000 * s) for s in range(61)]
    figures = memory(rising, 0.0, 60.0)
    assert figures is not None
    assert figures["slope_mb_per_min"] == pytest.approx(60.0)
    assert memory(rising[:3], 0.0, 60.0) is None


def test_added_latency_is_taken_within_a_round() -> None:
    def run(number: int, arm: str, p50: float, failed: int) -> dict[str, object]:
        good = {"first_ms": {"p50": p50}, "failed": {"status 500": failed} if failed else {}}
        return {"round": number, "arm": arm, "paced": good, "full": {"failed": {}}}

    records = [run(0, "direct", 10, 0), run(0, "x", 12, 0), run(1, "direct", 100, 0), run(1, "x", 103, 2)]
    assert added_ms(records, "x", "p50") == [2, 3]
    assert failures(records, "x") == 2
    assert median_and_range([3.0, 1.0, 2.0]) == "2 [1, 3]"
    assert median_and_range([]) is None


def test_a_whole_stream_is_its_tokens_and_its_end() -> None:
    body = stream_body(3)
    assert body.count(TOKEN) == 3
    assert body.endswith(END)
    assert body.endswith(b"data: [DONE]\n\n")
