"""Progress on stderr: a bar if it is a terminal and rich is installed, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from sembase.registry import load_target
from sembase.streams import write_err

T = TypeVar("T")
_SECONDS_BETWEEN_LINES: Final = 5.0


def plain_progress(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    started = first = last = time.monotonic()
    count = 0
    for count, item in enumerate(items, start=1):
        now = time.monotonic()
        if count == 1:
            first = last = now  # the first item includes loading and compiling, so it says nothing about the rest
        elif now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            left = (now - first) / (count - 1) * (total - count)
            write_err(f"{label}: {count}/{total} done, about {left:.0f} s left\n")
        yield item
    write_err(f"{label}: {count}/{total} done in {time.monotonic() - started:.1f} s\n")


def watch(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    if sys.stderr.isatty():
        try:
            bar_progress = load_target("sembench.replay.progress_bar:bar_progress")
        except ModuleNotFoundError:
            pass
        else:
            bar: Iterator[T] = bar_progress(items, total, label)
            return bar
    return plain_progress(items, total, label)
