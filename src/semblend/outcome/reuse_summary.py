"""One log line per minute with requests: events in, how much of the prompts was reused and why the rest was not out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from semblend.contract import Declined, Event, LookupFinished, Materialized

_INTERVAL_S: Final = 60.0
_MAX_OPEN: Final = 4096  # requests that were looked up and not answered yet; one that is aborted leaves its entry


def in_a_minute(call: Callable[[], None]) -> None:
    timer = threading.Timer(_INTERVAL_S, call)
    timer.daemon = True  # the process does not wait for it
    timer.start()


class ReuseSummary:
    """Counts requests that were served or declined. The first of an interval starts the interval; any thread may count.

    ``later`` calls what it is given at the end of an interval.
    """

    def __init__(self, write: Callable[[str], None], later: Callable[[Callable[[], None]], None] = in_a_minute) -> None:
        self._write, self._later = write, later
        self._lock = threading.Lock()
        self._open: dict[str, LookupFinished] = {}
        self._clear()

    def count(self, event: Event) -> None:
        with self._lock:
            match event:
                case LookupFinished():
                    self._open[event.request_id] = event
                    if len(self._open) > _MAX_OPEN:
                        del self._open[next(iter(self._open))]
                    return
                case Materialized():
                    reused, reason = event.reused_tokens, ""
                case Declined():
                    reused, reason = 0, event.reason
                case _:
                    return
            if (asked := self._open.pop(event.request_id, None)) is None:
                return
            is_first = not self._requests
            self._requests += 1
            self._prompt_tokens += asked.prompt_tokens
            self._prefix_tokens += asked.exact_prefix_tokens
            self._reused_tokens += reused
            if reason:
                self._declined[reason] += 1
        if is_first:
            self._later(self.flush)

    def flush(self) -> None:
        """Write the line of the requests since the last one; nothing without requests."""
        with self._lock:
            line = self._line() if self._requests else ""
            self._clear()
        if line:
            self._write(line)

    def _line(self) -> str:
        share = self._reused_tokens / max(1, self._prompt_tokens)
        line = (
            f"SemBlend reused {self._reused_tokens:,} of {self._prompt_tokens:,} prompt tokens ({share:.0%}) in "
            f"{self._requests:,} request{'' if self._requests == 1 else 's'}"
        ).replace("%", " %")
        if self._prefix_tokens:
            line += f"; the engine's prefix cache had {self._prefix_tokens:,}"
        if self._declined:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in self._declined.most_common())
            line += f"; declined {self._declined.total():,}: {reasons}"
        return line

    def _clear(self) -> None:
        self._requests = self._prompt_tokens = self._prefix_tokens = self._reused_tokens = 0
        self._declined: Counter[str] = Counter()
