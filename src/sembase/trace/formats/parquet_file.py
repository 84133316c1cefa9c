"""Parquet files of ours: a columnar trace, or trace records; which of the two stands in the file's own metadata."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sembase.trace.arrow import RECORDS_KIND, parquet_kind
from sembase.trace.build import build_trace, in_time_order
from sembase.trace.columns import BlockTrace
from sembase.trace.formats.interface import Options, TraceFormat, refuse_options
from sembase.trace.naming import trace_name
from sembase.trace.parquet import load_parquet
from sembase.trace.parquet_records import iter_records_parquet
from sembase.trace.record import TraceRecord


def records(path: Path) -> Iterator[TraceRecord]:
    yield from iter_records_parquet(path)


def load(path: Path, given: Options) -> BlockTrace:
    refuse_options(given, "parquet")
    if parquet_kind(path) == RECORDS_KIND:
        return build_trace(in_time_order(records(path), path.name), trace_name(path))
    return load_parquet(path)


FORMAT = TraceFormat(
    name="parquet",
    summary="a columnar trace or trace records as this project saves them (extra 'simulator')",
    looks_like=lambda head: head.startswith(b"PAR1"),
    load=load,
    records=records,
)
