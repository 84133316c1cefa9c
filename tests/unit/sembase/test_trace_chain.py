"""The chain check: it reports exactly the ids that follow different blocks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ContractError
from sembase.trace.chain import find_unchained, require_chained
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace
from sembase.trace.load import load_trace


def trace_of(rows: list[list[int]]) -> BlockTrace:
    interner = TreeInterner()
    nodes = np.concatenate([np.empty(0, np.int32), *(interner.add(-1, np.array(row, np.int64), 16) for row in rows)])
    return block_trace("t", np.cumsum([0, *map(len, rows)]).astype(np.int64), nodes, interner, block_tokens=16)


def parents(rows: list[list[int]]) -> dict[int, set[int]]:
    """Brute force: every id with all the ids it was seen right behind (-1: first in its request)."""
    found: dict[int, set[int]] = {}
    for row in rows:
        for before, block in zip([-1, *row], row, strict=False):
            found.setdefault(block, set()).add(before)
    return found


@given(st.lists(st.lists(st.integers(0, 6), max_size=5), max_size=6))
def test_it_finds_an_unchained_id_exactly_where_there_is_one(rows: list[list[int]]) -> None:
    """One parent id for every id makes each prefix one path, so ids with one parent each are chained."""
    found = find_unchained(trace_of(rows))
    assert (found is not None) == any(len(before) > 1 for before in parents(rows).values())
    if found is not None:
        first = rows[found.first_request][found.first_position]
        assert first == rows[found.second_request][found.second_position]
        assert rows[found.first_request][: found.first_position] != rows[found.second_request][: found.second_position]


def test_the_refusal_says_where_how_much_and_what_to_do() -> None:
    require_chained(trace_of([[1, 2, 3], [1, 2, 4]]))
    with pytest.raises(
        ContractError,
        match=r"request 0, block 1 follows different blocks at request 1, block 0 \(1 of 3 ids do\).*unchained=by_path",
    ):
        require_chained(trace_of([[1, 2, 3], [2]]))


def test_a_block_set_has_no_chain() -> None:
    with pytest.raises(ContractError, match="block set"):
        find_unchained(trace_of([[1]]).as_block_set())


def test_unchained_mooncake_files_are_refused_or_distinguished_by_path(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    ids = ([1, 2], [3, 2])  # block 2 hashed by itself: equal content behind different blocks
    lines = [{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": row} for row in ids]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ContractError, match="m: block ids are not chained"):
        load_trace(path)
    trace = load_trace(path, options={"unchained": "by_path"})
    assert trace.nodes.tolist() == [0, 1, 2, 3]
    assert trace.content.tolist() == [0, 1, 2, 1]
