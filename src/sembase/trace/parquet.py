"""Parquet files (extra ``simulator``): which kind a file holds, and columnar traces saved and loaded byte for byte.

A columnar trace has one row per request. A node's columns are in the row of the first request that refers to it, so a
reader can stop or stream anywhere: the rows read so far define every node they refer to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, ContractError, MissingDependencyError
from sembase.trace.columns import PER_NODE, PER_REQUEST, BlockTrace, unknown_value
from sembase.trace.files import write_atomically
from sembase.trace.rows import Column

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError:  # the base install
    pa = pq = None

__all__ = [
    "ABOUT_KEY",
    "RECORDS_KIND",
    "TRACE_KIND",
    "about_file",
    "iter_parquet",
    "load_parquet",
    "open_parquet",
    "pa",
    "parquet_kind",
    "pq",
    "require_pyarrow",
    "save_parquet",
]

TRACE_KIND: Final = "semantic_kv.block_trace.v1"
RECORDS_KIND: Final = "semantic_kv.trace.v1"
ABOUT_KEY: Final = b"semantic_kv"
ROW_GROUP_REFERENCES: Final = 4_000_000
_NODE_DTYPES: Final[dict[str, Any]] = {"parent": np.int32, **PER_NODE}


def require_pyarrow() -> None:
    if pq is None:
        raise MissingDependencyError("pyarrow", "simulator", "reading and writing Parquet")


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    require_pyarrow()
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except pa.ArrowInvalid as error:
        raise ContractError(f"{path.name}: not a readable Parquet file: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None


def parquet_kind(path: Path) -> str:
    with open_parquet(path) as file:
        return str(about_file(file, path)["kind"])


def about_file(file: Any, path: Path, kind: str | None = None) -> dict[str, Any]:
    """The file's own description; raises if this project did not write it, or if it is not of the requested kind."""
    raw = (file.schema_arrow.metadata or {}).get(ABOUT_KEY, b"{}")
    try:
        about = json.loads(raw)
    except ValueError:
        about = {}
    wanted = (kind,) if kind else (TRACE_KIND, RECORDS_KIND)
    if not isinstance(about, dict) or about.get("kind") not in wanted:
        raise ContractError(f"{path.name}: a Parquet file, but not a {' or '.join(wanted)} file of this project")
    return about


def save_parquet(trace: BlockTrace, path: Path) -> None:
    """Written to a temporary file and moved into place: a reader never sees half a file."""
    require_pyarrow()
    node_offsets = _first_sight_offsets(trace)
    about = {"kind": TRACE_KIND, "name": trace.name, "block_tokens": trace.block_tokens, "tree": trace.is_tree}
    with write_atomically(path) as stream:
        writer = None
        for start, stop in _row_groups(trace.offsets):
            table = _table(trace, node_offsets, start, stop)
            if writer is None:
                schema = table.schema.with_metadata({ABOUT_KEY: json.dumps(about).encode()})
                writer = pq.ParquetWriter(stream, schema, compression="zstd")
            writer.write_table(table.replace_schema_metadata(schema.metadata), row_group_size=max(1, stop - start))
        if writer is None:
            raise ContractError(f"trace '{trace.name}' contains no requests")
        writer.close()


def load_parquet(path: Path) -> BlockTrace:
    """The whole trace, in memory."""
    offsets, nodes = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
    columns: dict[str, list[Any]] = {name: [] for name in PER_REQUEST}
    for chunk in iter_parquet(path):
        offsets.append(chunk.offsets[1:] + offsets[-1][-1])
        nodes.append(chunk.nodes)
        for name, parts in columns.items():
            parts.append(getattr(chunk, name))
    if len(nodes) == 1:
        raise ContractError(f"{path.name}: contains no requests")
    joined: dict[str, Any] = {name: np.concatenate(parts) for name, parts in columns.items()}
    return replace(chunk, offsets=np.concatenate(offsets), nodes=np.concatenate(nodes), **joined)


def iter_parquet(path: Path) -> Iterator[BlockTrace]:
    """Chunks of the trace, each with the node columns so far. Holds one row group and 13 bytes per node."""
    with open_parquet(path) as file:
        about = about_file(file, path, TRACE_KIND)
        names = [name for name in _NODE_DTYPES if name != "parent" or about["tree"]]
        so_far: dict[str, Column[Any]] = {name: Column(_NODE_DTYPES[name]) for name in names}
        for number in range(file.num_row_groups):
            table = file.read_row_group(number)
            offsets, nodes = _lists(table, "nodes")
            for name in names:
                so_far[name].extend(_lists(table, f"new_{name}")[1])
            node_columns: dict[str, Any] = {name: column.array() for name, column in so_far.items()}
            chunk = BlockTrace(
                name=about["name"],
                block_tokens=about["block_tokens"],
                offsets=offsets,
                nodes=nodes,
                parent=node_columns.pop("parent", None),
                **node_columns,
                **{name: _request_column(table, name) for name in PER_REQUEST},
            )
            chunk.check()
            yield chunk


def _request_column(table: Any, name: str) -> NDArray[Any]:
    """A file written before the column existed knows none of its values."""
    if name not in table.column_names:
        return np.full(table.num_rows, unknown_value(name), PER_REQUEST[name])
    column: NDArray[Any] = table[name].to_numpy().copy()
    return column


def _table(trace: BlockTrace, node_offsets: NDArray[np.int64], start: int, stop: int) -> Any:
    references = slice(trace.offsets[start], trace.offsets[stop])
    fresh = slice(node_offsets[start], node_offsets[stop])
    columns: dict[str, Any] = {name: pa.array(getattr(trace, name)[start:stop]) for name in PER_REQUEST}
    columns["nodes"] = _list_array(trace.offsets[start : stop + 1], trace.nodes[references])
    for name in _NODE_DTYPES:
        column = getattr(trace, name)
        if column is not None:
            columns[f"new_{name}"] = _list_array(node_offsets[start : stop + 1], column[fresh])
    return pa.table(columns)


def _list_array(offsets: NDArray[np.int64], values: NDArray[Any]) -> Any:
    return pa.LargeListArray.from_arrays(pa.array(offsets - offsets[0]), pa.array(values))


def _lists(table: Any, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    column = table[name]
    lists = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    offsets = lists.offsets.to_numpy()
    return offsets - offsets[0], lists.flatten().to_numpy().copy()  # Arrow's own memory is read-only


def _first_sight_offsets(trace: BlockTrace) -> NDArray[np.int64]:
    """How many nodes were seen before each request; ids must be dense and numbered by first occurrence."""
    highest = np.maximum.accumulate(np.concatenate([np.array([-1], np.int32), trace.nodes]))
    steps = np.diff(highest)
    if trace.node_count != highest[-1] + 1 or (steps.size and steps.max() > 1):
        raise ContractError(
            f"trace '{trace.name}': node ids are not numbered by first occurrence (is this a window of a trace?); "
            "save the whole trace"
        )
    seen: NDArray[np.int64] = highest[trace.offsets].astype(np.int64) + 1
    return seen


def _row_groups(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    start, requests = 0, len(offsets) - 1
    while start < requests:
        stop = int(np.searchsorted(offsets, offsets[start] + ROW_GROUP_REFERENCES, side="right")) - 1
        stop = min(max(stop, start + 1), requests)
        yield start, stop
        start = stop
