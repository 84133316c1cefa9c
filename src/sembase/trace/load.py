"""Load traces: a named trace (see ``locate``) in any supported format in, columns or a stream of records out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError, ContractError
from sembase.trace.build import build_trace, in_time_order
from sembase.trace.columns import BlockTrace
from sembase.trace.files import parse_json, read_head, trace_name
from sembase.trace.formats import FORMATS
from sembase.trace.locate import trace_files
from sembase.trace.merge import merge_records
from sembase.trace.record import TraceRecord

_SHOWN_FIELDS: Final = 12
# The most specific first bytes first.
_SNIFF_ORDER: Final = (
    "azure",
    "claude_code",
    "mooncake",
    "claude_log",
    "otel_genai",
    "litellm",
    "langfuse",
    "sglang_log",
    "vllm_log",
    "json",
    "trace_v1",
    "agent_text",
    "openai",
    "csv",
    "parquet",  # last, because it imports pyarrow
)


def load_trace(path: Path | str, format: str | None = None, options: Mapping[str, object] | None = None) -> BlockTrace:
    """Without ``format``, the format of each file is detected from its first line. ``options`` belong to the format.

    Several files become one trace of their records in time order; options apply to a single file only.
    """
    files = trace_files(path)
    if len(files) == 1:
        return FORMATS.get(format or sniff_format(files[0])).load(files[0], options or {})
    if options:
        raise ConfigurationError(f"{path}: {len(files)} files; the options of a format apply to a single file")
    return build_trace(in_time_order(read_records(path, format), str(path)), trace_name(Path(path)))


def read_records(path: Path | str, format: str | None = None) -> Iterator[TraceRecord]:
    """The trace records, one by one: of one file in its order, of several merged by time (see ``merge``).

    Memory does not grow with the files, except for JSON documents.
    """
    files = trace_files(path)
    if len(files) == 1:
        return _records_of(files[0], format)
    return merge_records([partial(_records_of, file, format) for file in files])


def _records_of(file: Path, format: str | None) -> Iterator[TraceRecord]:
    name = format or sniff_format(file)
    records = FORMATS.get(name).records
    if records is None:
        raise ConfigurationError(f"{file.name}: format '{name}' has block ids, not trace records; use load_trace")
    return records(file)


def sniff_format(path: Path) -> str:
    """The format of one file. The error names the formats."""
    head = read_head(path)
    others = [name for name in FORMATS.names() if name not in _SNIFF_ORDER]
    for name in (*_SNIFF_ORDER, *others):
        if FORMATS.get(name).looks_like(head):
            return name
    raise ConfigurationError(
        f"{path}: unknown trace format{_nearest(head)}; choose one with --format: {', '.join(FORMATS.names())}"
    )


def _nearest(head: bytes) -> str:
    """The fields of the first line, and the format that shares most of them."""
    try:
        line = parse_json(head.partition(b"\n")[0], "")
    except ContractError:
        return ""
    if not isinstance(line, dict):
        return ""
    message = f"; its first line has the fields {', '.join(list(line)[:_SHOWN_FIELDS])}"
    nearest = max((FORMATS.get(name) for name in _SNIFF_ORDER), key=lambda each: len(line.keys() & set(each.fields)))
    if not line.keys() & set(nearest.fields):
        return message
    return f"{message}; the nearest format is {nearest.name} (its fields: {', '.join(nearest.fields)})"
