"""The progress bar. Imports the optional ``rich``, so it is loaded only when stderr is a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


def bar_progress(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=total)
        for item in items:
            yield item
            with suppress(OSError):  # a closed terminal must not stop the run
                progress.advance(task)
