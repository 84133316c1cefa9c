"""Columnar traces in Parquet: byte for byte, in row groups that can be streamed, and nothing of anyone else's."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, ContractError
from sembase.trace import parquet
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace
from sembase.trace.load import load_trace, read_records
from sembase.trace.parquet import load_parquet, save_parquet
from sembase.trace.stream import stream_trace


def trace_of(rows: list[list[int]], **columns: NDArray[Any]) -> BlockTrace:
    interner = TreeInterner()
    nodes = [interner.add(row[0] % 2 if row else 0, np.array(row, np.int64), 16, len(row) % 8) for row in rows]
    offsets = np.cumsum([0, *(len(row) for row in rows)]).astype(np.int64)
    flat = np.concatenate([np.empty(0, np.int32), *nodes])
    return block_trace("small", offsets, flat, interner, block_tokens=16, **columns)


def assert_same(left: BlockTrace, right: BlockTrace) -> None:
    for field in fields(BlockTrace):
        ours, theirs = getattr(left, field.name), getattr(right, field.name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype, field.name
            assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"), field.name
        else:
            assert ours == theirs, field.name


UNDER_LOAD = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
rows = st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=12)


@given(rows=rows, is_tree=st.booleans(), group=st.integers(1, 10))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_a_trace_comes_back_byte_for_byte_and_in_chunks(
    tmp_path: Path, rows: list[list[int]], is_tree: bool, group: int
) -> None:
    observed = np.where(np.arange(len(rows)) % 2, np.nan, 7.5)
    trace = trace_of(rows, arrival_ms=np.arange(len(rows)) * 2.5, observed_ttft_ms=observed)
    trace = trace if is_tree else trace.as_block_set()
    path = tmp_path / "t.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "ROW_GROUP_REFERENCES", group)
        save_parquet(trace, path)
    assert_same(load_parquet(path), trace)
    assert_same(load_trace(path), trace)
    chunks = list(stream_trace(path))
    assert len(chunks) == pq.ParquetFile(path).num_row_groups
    assert np.array_equal(np.concatenate([chunk.nodes for chunk in chunks]), trace.nodes)
    for chunk in chunks:
        assert np.array_equal(chunk.node_tokens, trace.node_tokens[: chunk.node_count])
        assert not len(chunk.nodes) or chunk.nodes.max() < chunk.node_count


def test_row_groups_hold_a_bounded_number_of_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_REFERENCES", 10)
    save_parquet(trace_of([[1, 2, 3, 4]] * 9), tmp_path / "t.parquet")
    assert [chunk.reference_count for chunk in stream_trace(tmp_path / "t.parquet")] == [8, 8, 8, 8, 4]


def test_a_window_whose_ids_are_not_its_own_is_refused(tmp_path: Path) -> None:
    trace = trace_of([[1, 2], [3, 4]])
    with pytest.raises(ContractError, match="not numbered by first occurrence"):
        save_parquet(trace.window(1, 2), tmp_path / "t.parquet")
    assert not list(tmp_path.iterdir())


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"nodes": [1, 2]}), path)
    with pytest.raises(ContractError, match=r"t\.parquet: a Parquet file, but not a semantic_kv\.block_trace\.v1 or"):
        load_trace(path)
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ContractError, match=r"t\.parquet: not a readable Parquet file"):
        load_trace(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_parquet(tmp_path / "absent.parquet")


def test_a_columnar_trace_has_no_records(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    save_parquet(trace_of([[1]]), path)
    with pytest.raises(ContractError, match="contains no records"):
        next(read_records(path))
