"""The attempts of a run, and its progress on stderr.

A run that was interrupted and resumed has several attempts. ``run.sittings`` of the result, and the first line of the
partial rows, state when each began and ended, what it measured and what failed, even if a later attempt measured it
again.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.streams import write_err
from sembench.http.reply import OK
from sembench.live.engine import engine_label
from sembench.metrics.rows import RequestRow, row_from_json
from sembench.replay.partial import read_partial

_SECONDS_BETWEEN_LINES: Final = 5.0


def statuses_of(row: RequestRow) -> list[str]:
    return [arm.status for arm in (row.cold, row.warm) if arm is not None]


def has_failed(row: RequestRow) -> bool:
    return any(status != OK for status in statuses_of(row))


def start_attempt(kept_items: int) -> dict[str, Any]:
    """``kept_items``: the number of rows that earlier attempts measured."""
    return {"started_at_utc": _timestamp(datetime.now(UTC)), "kept_items": kept_items}


def end_attempt(attempt: Mapping[str, Any], rows: Sequence[RequestRow], at: datetime, how: str) -> dict[str, Any]:
    """``rows`` are all rows at its end. Failed rows are its own: those of earlier attempts were not kept."""
    failed = [row for row in rows if has_failed(row)]
    statuses = Counter(status for row in failed for status in statuses_of(row) if status != OK)
    return {
        **attempt,
        "ended_at_utc": _timestamp(at),
        "end": how,
        "measured_items": len(rows) - int(attempt["kept_items"]),
        "failed_items": len(failed),
        "failed_arm_statuses": dict(sorted(statuses.items())),
    }


def read_attempts(path: Path, identity: Mapping[str, Any]) -> tuple[list[RequestRow], list[dict[str, Any]]]:
    """Rows and attempts of the partial file, the last attempt ended. Rows of another run or engine are rejected."""
    if not path.exists():
        return [], []
    header = _header(path)
    engine = header.get("engine")
    if isinstance(engine, dict) and engine != identity["engine"]:
        raise ConfigurationError(
            f"{path}: its rows are of {engine_label(engine)}, but the server is {engine_label(identity['engine'])}; "
            "start the other server again, or delete the file and run without --resume"
        )
    attempts = header.get("sittings") or []
    rows = read_partial(path, {**identity, "sittings": attempts}, row_from_json)
    if not attempts:
        return rows, []
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return rows, [*attempts[:-1], end_attempt(attempts[-1], rows, written, "broken off")]


def _header(path: Path) -> dict[str, Any]:
    """Empty if the first line is not a header; ``read_partial`` checks the file."""
    with path.open(encoding="utf-8") as stream:
        line = stream.readline()
    try:
        header = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return header if isinstance(header, dict) else {}


def _timestamp(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


class LiveProgress:
    """Items done, median TTFT per arm, confirmed reuse and time left; rows of earlier attempts count.

    On a terminal one line is rewritten in place; otherwise a line is written every few seconds.
    """

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
            elif arm.contaminated is not True and arm.ttft_ms is not None:
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
