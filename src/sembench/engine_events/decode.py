"""One line of the SemBlend event stream -> an event, or ``None`` for what is none.

Evidence must be possible: a count below zero or a time without end is damage, though the codec knows only types.
"""

from __future__ import annotations

import math
from dataclasses import fields

from semblend.contract import EventFormatError, EventLine, decode_line


class Sequence:
    """Notices numbered events that never came. A writer that starts again counts from its start again."""

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
