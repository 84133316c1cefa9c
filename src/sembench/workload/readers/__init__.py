"""Readers turn the rows of a public format into source records. The reader is chosen by the keys of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.registry import Registry
from sembench.workload.readers.files import DataFile
from sembench.workload.record import SourceRecord

Rows = Iterable[Mapping[str, Any]]
Reader = Callable[[Rows, str], Iterator[SourceRecord]]

READERS: Final[Registry[Reader]] = Registry("reader", group="sembench.readers")
for _name in ("agent", "musique", "qmsum", "leval", "longbench", "plain"):
    READERS.register(_name, f"sembench.workload.readers.{_name}:read_{_name}")

# The first format whose keys are all in the row; the most specific formats come first.
_SIGNATURES: Final = (
    ("agent", ("timestamp", "input", "output")),
    ("musique", ("ctxs", "question", "answers")),
    ("qmsum", ("meeting_transcripts", "specific_query_list")),
    ("leval", ("instructions", "outputs", "input")),
    ("longbench", ("context", "input", "answers")),
    ("plain", ("context",)),
)


def recognise(file: DataFile) -> str | None:
    """The reader for a file, or None if no reader knows its rows."""
    first = file.first_row()
    if first is None:
        return None
    return next((name for name, keys in _SIGNATURES if all(key in first for key in keys)), None)


def accepted_keys(*names: str) -> str:
    """The keys each reader (or each of ``names``) requires, for error messages."""
    return "; ".join(f"{name}: {', '.join(keys)}" for name, keys in _SIGNATURES if not names or name in names)


def why_not(file: DataFile, *names: str) -> str | None:
    """Why no reader (or none of ``names``) accepts this file; None if one does."""
    try:
        first = file.first_row()
    except ConfigurationError as error:
        return str(error)
    if first is None:
        return "no rows"
    reader = recognise(file)
    if reader is not None and (not names or reader in names):
        return None
    return f"keys {', '.join(sorted(first)) or '(none)'}"


def read_records(file: DataFile) -> Iterator[SourceRecord]:
    name = recognise(file)
    if name is None:
        first = file.first_row() or {}
        raise ConfigurationError(
            f"{file.location}: no reader knows rows with the keys {sorted(first)}. Known ({accepted_keys()})"
        )
    return READERS.get(name)(file.rows(), file.name)
