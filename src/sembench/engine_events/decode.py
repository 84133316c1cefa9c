"""One line of the SemBlend event stream -> an event, or ``None`` if it is not a valid one.

The codec checks types only. Negative or non-finite numbers are rejected here.
"""

from __future__ import annotations

import math
from dataclasses import fields

from semblend.contract import EventFormatError, EventLine, decode_line


class Sequence:
    """Finds gaps in the sequence numbers of each engine. A lower number means that the writer restarted: no gap."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def gap_before(self, line: EventLine) -> int:
        expected = self._next.get(line.engine, line.sequence)
        self._next[line.engine] = line.sequence + 1
        return max(0, line.sequence - expected)


def decode_event(line: str) -> EventLine | None:
    try:
        decoded = decode_line(line)
    except (EventFormatError, OverflowError):
        return None
    values = [decoded.timestamp_ms, *(getattr(decoded.event, f.name) for f in fields(decoded.event))]
    return decoded if all(map(_is_possible, values)) else None


def _is_possible(value: object) -> bool:
    if not isinstance(value, int | float):
        return True
    return math.isfinite(value) and value >= 0
