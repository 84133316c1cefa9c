"""A live run's progress on stderr: done, median TTFT of both arms, confirmed reuse so far, time left."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Final

from sembase.streams import write_err
from sembench.metrics.rows import ArmRow, RequestRow

_SECONDS_BETWEEN_LINES: Final = 5.0


class LiveProgress:
    """One line rewritten in place on a terminal, else a line every few seconds. Rows of earlier sittings count, too."""

    def __init__(
        self, label: str, total: int, done: list[RequestRow], arms: tuple[str, str] = ("cold", "warm")
    ) -> None:
        self._label = label
        self._arms = arms
        self._total = total
        self._cold_ms: list[float] = []
        self._warm_ms: list[float] = []
        self._reported = self._reused = self._failed = 0
        self._started = self._shown = time.monotonic()
        self._in_place = sys.stderr.isatty()
        self._before = len(done)
        self._done = 0
        for row in done:
            self._count(row)

    def add(self, row: RequestRow) -> None:
        self._done += 1
        self._count(row)
        now = time.monotonic()
        if self._in_place:
            write_err(f"\r\x1b[2K{self._line()}{self._left(now)}")
        elif now - self._shown >= _SECONDS_BETWEEN_LINES and self._before + self._done < self._total:
            self._shown = now
            write_err(f"{self._line()}{self._left(now)}\n")

    def end(self) -> None:
        start = "\r\x1b[2K" if self._in_place else ""
        write_err(f"{start}{self._line()}, {time.monotonic() - self._started:.1f} s\n")

    def _count(self, row: RequestRow) -> None:
        for arm, times in ((row.cold, self._cold_ms), (row.warm, self._warm_ms)):
            if arm is None:
                continue
            if arm.status != "ok":
                self._failed += 1
            elif _is_usable(arm) and arm.ttft_ms is not None:
                times.append(arm.ttft_ms)
        if row.backend is not None and row.backend.reused_tokens is not None:
            self._reported += 1
            self._reused += row.backend.reused_tokens > 0

    def _line(self) -> str:
        parts = [f"{self._label}: {self._before + self._done}/{self._total}"]
        for name, times in zip(self._arms, (self._cold_ms, self._warm_ms), strict=True):
            if times:
                parts.append(f"TTFT {name} {statistics.median(times):.0f} ms (n={len(times)})")
        if self._reported:
            parts.append(f"reuse confirmed {self._reused} of {self._reported}")
        if self._failed:
            parts.append(f"failed arms {self._failed}")
        return ", ".join(parts)

    def _left(self, now: float) -> str:
        left = self._total - self._before - self._done
        return f", about {(now - self._started) / self._done * left:.0f} s left" if left else ""


def _is_usable(arm: ArmRow) -> bool:
    return arm.contaminated is not True
