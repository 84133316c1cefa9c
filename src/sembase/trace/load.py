"""Load traces: a file in any supported format in, a columnar trace or a stream of records out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError
from sembase.trace.columns import BlockTrace
from sembase.trace.files import read_head
from sembase.trace.formats import FORMATS
from sembase.trace.record import TraceRecord

# The most specific first bytes first.
_SNIFF_ORDER: Final = (
    "azure",
    "cloudphysics",
    "claude_code",
    "mooncake",
    "json",
    "trace_v1",
    "agent_text",
    "csv",
    "parquet",  # last, because it imports pyarrow
)


def load_trace(path: Path | str, format: str | None = None, options: Mapping[str, object] | None = None) -> BlockTrace:
    """Without ``format``, the format is detected from the first bytes. ``options`` are those of the format."""
    file = Path(path)
    return FORMATS.get(format or sniff_format(file)).load(file, options or {})


def read_records(path: Path | str, format: str | None = None) -> Iterator[TraceRecord]:
    """The trace records of a file, one by one. Memory does not grow with the file, except for JSON documents."""
    file = Path(path)
    name = format or sniff_format(file)
    records = FORMATS.get(name).records
    if records is None:
        raise ConfigurationError(f"{file.name}: format '{name}' has block ids, not trace records; use load_trace")
    return records(file)


def sniff_format(path: Path) -> str:
    head = read_head(path)
    others = [name for name in FORMATS.names() if name not in _SNIFF_ORDER]
    for name in (*_SNIFF_ORDER, *others):
        if FORMATS.get(name).looks_like(head):
            return name
    raise ConfigurationError(f"{path}: unknown trace format; choose one with --format: {', '.join(FORMATS.names())}")
