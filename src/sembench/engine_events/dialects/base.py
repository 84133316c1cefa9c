"""The ``Dialect`` protocol: log lines in, counts and events in a ``Tally`` out. And helpers to parse ``key=value``."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, Protocol

from sembench.engine_events.tally import Tally

# Bounded, and anchored at the start of a word, so that matching stays linear in the length of the line.
_SPACED: Final = re.compile(r"(?<!\S)(\w{1,40})=(\S{1,256})(?!\S)")
_LISTED: Final = re.compile(r"(?<![\w.])(\w{1,40})=([^\s,;()]{1,256})(?=[\s,;()]|$)")
_NUMBER: Final = re.compile(r"[0-9]{1,12}")


class LineResult(Enum):
    """Whether a line belongs to the dialect. ``DAMAGED``: it starts like a known line but cannot be parsed."""

    UNDERSTOOD = auto()
    OTHER = auto()
    DAMAGED = auto()


class Dialect(Protocol):
    """One object per log. It may keep state between lines, of bounded size."""

    def begin(self, tally: Tally) -> None:
        """Declare which counts this dialect can report (``tally.measures``)."""

    def read_line(self, line: str, tally: Tally) -> LineResult: ...

    def finish(self, tally: Tally) -> None:
        """Called after the last line: count what could not be decided earlier."""


def fields_of(message: str, *, listed: bool = False) -> dict[str, str]:
    """``key=value`` pairs separated by spaces, or with ``listed`` also by commas. The first of duplicate keys wins."""
    fields: dict[str, str] = {}
    for key, value in (_LISTED if listed else _SPACED).findall(message):
        fields.setdefault(key.lower(), value)
    return fields


def whole(text: str | None) -> int | None:
    """``text`` as a non-negative integer; ``None`` if it is not one."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def request_of(fields: dict[str, str]) -> str | None:
    return fields.get("request_id") or fields.get("rid") or fields.get("req_id")
