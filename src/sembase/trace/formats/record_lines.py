"""Trace records as JSON Lines (``semantic_kv.trace.v1``): what the collector and the proxy write. Streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sembase.trace.build import build_trace, in_time_order
from sembase.trace.columns import BlockTrace
from sembase.trace.formats.interface import Options, TraceFormat, refuse_options
from sembase.trace.lines import iter_json_lines
from sembase.trace.naming import trace_name
from sembase.trace.record import TraceRecord, parse_record


def records(path: Path) -> Iterator[TraceRecord]:
    for where, value in iter_json_lines(path):
        yield parse_record(value, where)


def load(path: Path, given: Options) -> BlockTrace:
    refuse_options(given, "trace_v1")
    return build_trace(in_time_order(records(path), path.name), trace_name(path))


FORMAT = TraceFormat(
    name="trace_v1",
    summary="semantic_kv.trace.v1 records, one JSON object a line, as the collector and the proxy write them",
    looks_like=lambda head: head.lstrip().startswith(b"{") and b'"request_id"' in head.partition(b"\n")[0],
    load=load,
    records=records,
)
