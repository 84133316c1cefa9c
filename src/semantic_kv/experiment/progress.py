"""How far a study is, on stderr: a bar by rich on a terminal, a line now and then elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sembase.registry import Registry
from sembase.streams import write_err

Advance = Callable[[int], None]
_PARTS: Final[Registry[Any]] = Registry("progress part")
for _name in ("Progress", "BarColumn", "TextColumn", "MofNCompleteColumn", "TimeRemainingColumn"):
    _PARTS.register(_name, f"rich.progress:{_name}")
_PARTS.register("Console", "rich.console:Console")
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
            _PARTS.get("TextColumn")("{task.description}"),
            *(_PARTS.get(name)() for name in ("BarColumn", "MofNCompleteColumn", "TimeRemainingColumn")),
        ]
    except ModuleNotFoundError:  # rich is a comfort, not a need
        yield _lines(title, total)
        return
    console = _PARTS.get("Console")(stderr=True)
    with _PARTS.get("Progress")(*columns, console=console, transient=True) as shown:
        task = shown.add_task(title, total=total)
        yield lambda done: shown.advance(task, done)
