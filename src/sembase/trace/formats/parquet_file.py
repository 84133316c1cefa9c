"""Parquet files this project wrote: a columnar trace or trace records, as the file's own metadata says."""

from __future__ import annotations

from pathlib import Path

from sembase.trace.build import build_trace, in_time_order
from sembase.trace.columns import BlockTrace
from sembase.trace.files import trace_name
from sembase.trace.formats.interface import Options, TraceFormat, reject_options
from sembase.trace.parquet import RECORDS_KIND, load_parquet, parquet_kind
from sembase.trace.parquet_records import iter_records_parquet


def load(path: Path, given: Options) -> BlockTrace:
    reject_options(given, "parquet")
    if parquet_kind(path) == RECORDS_KIND:
        return build_trace(in_time_order(iter_records_parquet(path), path.name), trace_name(path))
    return load_parquet(path)


FORMAT = TraceFormat(
    name="parquet",
    summary="a columnar trace or trace records as this project saves them (extra 'simulator')",
    looks_like=lambda head: head.startswith(b"PAR1"),
    load=load,
    records=iter_records_parquet,
)
