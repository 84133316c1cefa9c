"""Progress on stderr: one line that is rewritten on a terminal, a new line every 20 s elsewhere, nothing if quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sembase.streams import write_err

Advance = Callable[[int], None]
_SECONDS: Final = {True: 0.2, False: 20.0}  # between two updates, on a terminal and elsewhere
_BAR: Final = 24
_COLUMNS: Final = 78


class Progress:
    def __init__(self, *, quiet: bool) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._quiet = quiet
        self._start = self._last = time.monotonic()
        self._counted: str | None = None

    @property
    def is_due(self) -> bool:
        return not self._quiet and time.monotonic() - self._last >= _SECONDS[self._is_terminal]

    def update(self, counted: str, done: float | None) -> None:
        """``counted`` says what was done so far. ``done`` is the fraction of all of it, None if unknown."""
        if self.is_due:
            self._show(counted, done)

    def finish(self, counted: str | None = None) -> None:
        """Clear the line of a terminal; elsewhere ``counted`` is the last line."""
        if self._is_terminal and not self._quiet:
            write_err("\r" + " " * _COLUMNS + "\r")
        elif counted not in (None, self._counted) and not self._quiet:
            write_err(f"{counted}\n")

    def _show(self, counted: str, done: float | None) -> None:
        now = self._last = time.monotonic()
        line = self._counted = counted
        if done:
            left = (now - self._start) * (1 - done) / done
            filled = round(_BAR * done)
            line += f"  [{'#' * filled}{'.' * (_BAR - filled)}] {100 * done:3.0f} %  {left:,.0f} s left"
        write_err(f"\r{line:<{_COLUMNS}}" if self._is_terminal else f"{line}\n")


@contextmanager
def count_up(title: str, total: int, *, quiet: bool = False) -> Iterator[Advance]:
    """A function that advances the progress by some of ``total``."""
    progress, done = Progress(quiet=quiet or total == 0), 0

    def advance(by: int) -> None:
        nonlocal done
        done += by
        progress.update(f"{title}: {done:,} of {total:,}", done / total if total else None)

    try:
        yield advance
    finally:
        progress.finish(f"{title}: {done:,} of {total:,}")
