"""Progress on stderr: a bar where rich is installed and a person is watching, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeVar

from sembase.registry import Registry
from sembase.streams import write_err

T = TypeVar("T")
_SECONDS_BETWEEN_LINES: Final = 5.0


class Progress(Protocol):
    def __call__(self, items: Iterable[T], total: int, label: str) -> Iterator[T]: ...


def plain_progress(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    started = first = last = time.monotonic()
    count = 0
    for count, item in enumerate(items, start=1):
        now = time.monotonic()
        if count == 1:
            first = last = now  # the first one waits for models and compilers to start; it tells nothing about the rest
        elif now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            left = (now - first) / (count - 1) * (total - count)
            write_err(f"{label}: {count}/{total} done, about {left:.0f} s left\n")
        yield item
    write_err(f"{label}: {count}/{total} done in {time.monotonic() - started:.1f} s\n")


_BARS: Final[Registry[Progress]] = Registry("progress")
_BARS.register("rich", "sembench.replay.progress_bar:bar_progress")


def watch(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    if sys.stderr.isatty():
        try:
            return _BARS.get("rich")(items, total, label)
        except ModuleNotFoundError:
            pass
    return plain_progress(items, total, label)
