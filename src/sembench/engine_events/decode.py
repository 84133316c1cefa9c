"""One line of the SemBlend event stream -> an event, or ``None`` if it is not a valid one."""

from __future__ import annotations

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
        return decode_line(line)
    except EventFormatError:
        return None
