"""Progress of a study on stderr: a rich progress bar on a terminal, a line every 20 s elsewhere, nothing if quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sembase.registry import load_target
from sembase.streams import write_err

Advance = Callable[[int], None]
_SECONDS_BETWEEN_LINES: Final = 20.0


@contextmanager
def progress(title: str, total: int, *, quiet: bool = False) -> Iterator[Advance]:
    if quiet or total == 0:
        yield lambda done: None
    elif not sys.stderr.isatty():
        yield _lines(title, total)
    else:
        with _bar(title, total) as advance:
            yield advance


def _lines(title: str, total: int) -> Advance:
    done = 0
    last = time.monotonic()

    def advance(by: int) -> None:
        nonlocal done, last
        done += by
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES or done == total:
            last = time.monotonic()
            write_err(f"{title}: {done} of {total}\n")

    return advance


@contextmanager
def _bar(title: str, total: int) -> Iterator[Advance]:
    try:
        columns = [
            load_target("rich.progress:TextColumn")("{task.description}"),
            load_target("rich.progress:BarColumn")(),
            load_target("rich.progress:MofNCompleteColumn")(),
            load_target("rich.progress:TimeRemainingColumn")(),
        ]
    except ModuleNotFoundError:  # rich is optional
        yield _lines(title, total)
        return
    console = load_target("rich.console:Console")(stderr=True)
    with load_target("rich.progress:Progress")(*columns, console=console, transient=True) as shown:
        task = shown.add_task(title, total=total)
        yield lambda done: shown.advance(task, done)
