"""The progress bar; an importer of the optional ``rich``, loaded only when a terminal is attached."""

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
            with suppress(OSError):  # a terminal that has gone stops no run
                progress.advance(task)
