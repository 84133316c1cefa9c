"""What a trace format provides: how to recognise it, how to load it, which options it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sembase.errors import ConfigurationError
from sembase.trace.build import build_trace, in_time_order
from sembase.trace.columns import BlockTrace
from sembase.trace.files import trace_name
from sembase.trace.record import TraceRecord

Options = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """``looks_like`` gets the first (decompressed) bytes; lines of JSON are cut to their outlines.

    ``records`` is None if such files have no trace records. ``fields`` are those that lines of JSON have: the error
    about an unknown file names the format that shares most of them.
    """

    name: str
    summary: str
    looks_like: Callable[[bytes], bool]
    load: Callable[[Path, Options], BlockTrace]
    records: Callable[[Path], Iterator[TraceRecord]] | None = None
    fields: tuple[str, ...] = ()


def reject_options(given: Options, format_name: str) -> None:
    if given:
        raise ConfigurationError(f"trace format '{format_name}' has no option '{next(iter(given))}'; its options: none")


def record_format(
    name: str,
    summary: str,
    looks_like: Callable[[bytes], bool],
    records: Callable[[Path], Iterator[TraceRecord]],
    fields: tuple[str, ...] = (),
) -> TraceFormat:
    """A format whose files hold trace records and that has no options: its columns are built from the records."""

    def load(path: Path, given: Options) -> BlockTrace:
        reject_options(given, name)
        return build_trace(in_time_order(records(path), path.name), trace_name(path))

    return TraceFormat(name, summary, looks_like, load, records, fields)
