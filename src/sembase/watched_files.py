"""Notices that files were replaced, so that keys and certificates change without a restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

CHECK_SECONDS: Final = 1.0
_Stamp = tuple[int, int, int]


class WatchedFiles:
    """Looks at most once per ``CHECK_SECONDS``. While a file is absent, as in the middle of a change, none counts as
    changed."""

    def __init__(self, paths: Sequence[Path], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._paths = tuple(paths)
        self._clock_s = clock_s
        self._stamps = self._look()
        self._checked_s = clock_s()

    def have_changed(self) -> bool:
        """Whether a file differs from the last time this returned True, or from the start."""
        now_s = self._clock_s()
        if now_s - self._checked_s < CHECK_SECONDS:
            return False
        self._checked_s, stamps = now_s, self._look()
        if stamps is None or stamps == self._stamps:
            return False
        self._stamps = stamps
        return True

    def _look(self) -> tuple[_Stamp, ...] | None:
        try:
            found = [path.stat() for path in self._paths]
        except OSError:
            return None
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)
