"""What a trace format provides: how to recognise it, how to load it, which options it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sembase.errors import ConfigurationError
from sembase.trace.build import build_trace, in_time_order
from sembase.trace.columns import BlockTrace
from sembase.trace.files import trace_name
from sembase.trace.record import TraceRecord

Options = Mapping[str, object]
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """``looks_like`` gets the first (decompressed) bytes. ``records`` is None if such files have no trace records."""

    name: str
    summary: str
    looks_like: Callable[[bytes], bool]
    load: Callable[[Path, Options], BlockTrace]
    records: Callable[[Path], Iterator[TraceRecord]] | None = None


def parse_options(kind: type[D], given: Options, format_name: str) -> D:
    """``given`` as the options dataclass ``kind``; raises for unknown names and wrong types."""
    assert dataclasses.is_dataclass(kind)
    defaults: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(kind)}
    for name, value in given.items():
        if name not in defaults:
            known = ", ".join(defaults) or "none"
            raise ConfigurationError(f"trace format '{format_name}' has no option '{name}'; its options: {known}")
        if not _fits(value, defaults[name]):
            wanted = type(defaults[name]).__name__ if defaults[name] is not None else "text"
            raise ConfigurationError(
                f"trace format '{format_name}': option '{name}' must be {wanted}, found {value!r:.40}"
            )
    return kind(**given)


def _fits(value: object, default: object) -> bool:
    """True for a value of the default's type. Integers pass as floats; a default of None means optional text."""
    if default is None:
        return value is None or isinstance(value, str)
    if isinstance(value, bool) or isinstance(default, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    return isinstance(value, int | float) if isinstance(default, float) else isinstance(value, type(default))


def reject_options(given: Options, format_name: str) -> None:
    if given:
        raise ConfigurationError(f"trace format '{format_name}' has no option '{next(iter(given))}'; its options: none")


def record_format(
    name: str, summary: str, looks_like: Callable[[bytes], bool], records: Callable[[Path], Iterator[TraceRecord]]
) -> TraceFormat:
    """A format whose files hold trace records and that has no options: its columns are built from the records."""

    def load(path: Path, given: Options) -> BlockTrace:
        reject_options(given, name)
        return build_trace(in_time_order(records(path), path.name), trace_name(path))

    return TraceFormat(name, summary, looks_like, load, records)
