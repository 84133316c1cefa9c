"""What a dialect is: one line at a time, what it understood goes to the tally. And the fields of such lines."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, Protocol

from sembench.engine_events.tally import Tally

# Bounded, and begun only where a word begins: no line of any length is slow to search.
_SPACED: Final = re.compile(r"(?<!\S)(\w{1,40})=(\S{1,256})(?!\S)")
_LISTED: Final = re.compile(r"(?<![\w.])(\w{1,40})=([^\s,;()]{1,256})(?=[\s,;()]|$)")
_NUMBER: Final = re.compile(r"[0-9]{1,12}")


class Heard(Enum):
    """Whether a line was of this dialect. Damaged: it begins like one that counts, and cannot be read to its end."""

    UNDERSTOOD = auto()
    OTHER = auto()
    DAMAGED = auto()


class Dialect(Protocol):
    """One object per log: it may remember lines, a bounded number of them."""

    def begin(self, tally: Tally) -> None:
        """Say which counts this dialect can show."""

    def hear(self, line: str, tally: Tally) -> Heard: ...

    def finish(self, tally: Tally) -> None:
        """Hand in what had to wait for the end of the log."""


def fields_of(message: str, *, listed: bool = False) -> dict[str, str]:
    """``key=value`` pairs between spaces, or ``listed`` with commas. Of a key that stands twice the first counts."""
    fields: dict[str, str] = {}
    for key, value in (_LISTED if listed else _SPACED).findall(message):
        fields.setdefault(key.lower(), value)
    return fields


def whole(text: str | None) -> int | None:
    """A count, or ``None`` for what is none."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def request_of(fields: dict[str, str]) -> str | None:
    return fields.get("request_id") or fields.get("rid") or fields.get("req_id")
