"""Trace records as JSON Lines (``semantic_kv.trace.v1``), written by the collector and the proxy. Read line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sembase.trace.files import iter_json_lines
from sembase.trace.formats.interface import record_format
from sembase.trace.record import TraceRecord, parse_record


def records(path: Path) -> Iterator[TraceRecord]:
    for where, value in iter_json_lines(path):
        yield parse_record(value, where)


def _looks_like(head: bytes) -> bool:
    first = head.lstrip().partition(b"\n")[0]
    return first.startswith(b"{") and b'"request_id"' in first and b'"blocks"' in first


FORMAT = record_format(
    "trace_v1",
    "semantic_kv.trace.v1 records, one JSON object per line, as the collector and the proxy write them",
    _looks_like,
    records,
    ("request_id", "timestamp_ms", "blocks", "session_id", "tenant_id"),
)
