"""Reuse at any position against brute force: every window of every request compared with every earlier one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError, ContractError
from sembase.trace.any_position import any_position_reuse, any_position_reuse_of, what_if_any_position
from sembase.trace.record import TraceBlock, TraceRecord
from sembase.trace.save import save_records


def covered_by_brute_force(
    rows: list[list[int]], tenants: list[int], window: int, block: int
) -> tuple[list[int], list[int]]:
    prefix_counts, either_counts = [], []
    for number, row in enumerate(rows):
        earlier = [rows[n] for n in range(number) if tenants[n] == tenants[number]]
        shared = max([_common(row, other) for other in earlier], default=0)
        prefix = shared - shared % block
        covered = set(range(prefix))
        windows = {tuple(other[i : i + window]) for other in earlier for i in range(len(other) - window + 1)}
        for start in range(len(row) - window + 1):
            if tuple(row[start : start + window]) in windows:
                covered.update(range(start, start + window))
        prefix_counts.append(prefix)
        either_counts.append(len(covered))
    return prefix_counts, either_counts


def _common(left: list[int], right: list[int]) -> int:
    length = 0
    while length < min(len(left), len(right)) and left[length] == right[length]:
        length += 1
    return length


rows_and_tenants = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=14), st.integers(-1, 1)), min_size=1, max_size=6
)


@given(drawn=rows_and_tenants, window=st.integers(1, 5), block=st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_it_is_what_brute_force_finds(drawn: list[tuple[list[int], int]], window: int, block: int) -> None:
    rows, tenants = [row for row, _ in drawn], [tenant for _, tenant in drawn]
    found = any_position_reuse(
        [np.array(row, np.int32) for row in rows], tenants=tenants, min_repeat_tokens=window, block_tokens=block
    )
    prefix, either = covered_by_brute_force(rows, tenants, window, block)
    assert found.per_request_prefix_tokens.tolist() == prefix
    assert found.per_request_either_tokens.tolist() == either
    assert found.prompt_tokens == sum(map(len, rows))
    assert found.added_tokens == sum(either) - sum(prefix)
    assert found.added_tokens >= 0


def test_a_passage_that_moved_is_found_and_a_prefix_cache_does_not_see_it() -> None:
    passage = np.arange(100, 180, dtype=np.int32)
    first = np.concatenate([np.arange(5, dtype=np.int32), passage])
    second = np.concatenate([np.arange(9, 40, dtype=np.int32), passage, np.arange(50, 60, dtype=np.int32)])
    found = any_position_reuse([first, second], min_repeat_tokens=64)
    assert found.prefix_tokens == 0
    assert found.either_tokens == 80
    assert found.prefix_share == 0.0
    assert found.either_share == pytest.approx(80 / (85 + 121))


def test_repeats_inside_one_request_do_not_count() -> None:
    row = np.tile(np.arange(10, dtype=np.int32), 5)
    assert any_position_reuse([row], min_repeat_tokens=10).either_tokens == 0


def test_no_tokens_have_no_share() -> None:
    found = any_position_reuse([np.empty(0, np.int32)])
    assert found.prompt_tokens == 0
    assert found.prefix_share is None
    assert found.either_share is None


def test_sizes_must_be_positive() -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        any_position_reuse([], min_repeat_tokens=0)


def texts(*prompts: str, tenants: tuple[str, ...] = ("a", "a")) -> list[TraceRecord]:
    return [
        TraceRecord(
            f"r{n}", n, tuple(TraceBlock("other", 1, text=part) for part in prompt.split("|")), tenant_id=tenant
        )
        for n, (prompt, tenant) in enumerate(zip(prompts, tenants, strict=True))
    ]


def test_records_are_asked_by_their_text_and_within_their_tenant(tmp_path: Path) -> None:
    prompts = ("one two three four", "zero| two three four five")
    path = tmp_path / "t.jsonl"
    save_records(texts(*prompts), path)
    assert what_if_any_position(path, min_repeat_tokens=3).either_tokens == 3
    apart = texts(*prompts, tenants=("a", "b"))
    assert any_position_reuse_of(apart, min_repeat_tokens=3).either_tokens == 0


def test_digests_alone_cannot_answer() -> None:
    with pytest.raises(ContractError, match="r1: a block has no text"):
        any_position_reuse_of([TraceRecord("r1", 0, (TraceBlock("user", 4, content_hash="x"),))])
