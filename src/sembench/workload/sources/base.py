"""The request to a profile (a source of records)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from sembench.workload.record import SourceRecord

CONTEXT_WORDS: Final = 600


@dataclass(frozen=True, slots=True)
class Unread:
    """A data file that was skipped, and why."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """Empty ``datasets`` means the profile's default; None for ``max_items_per_dataset`` means no limit.

    ``context_words`` is the length of documents that a profile generates. The source fills ``unread`` with the files it
    skipped.
    """

    datasets: tuple[str, ...] = ()
    data_dir: Path | None = None
    max_items_per_dataset: int | None = None
    seed: int = 0
    context_words: int = CONTEXT_WORDS
    unread: list[Unread] = field(default_factory=list, compare=False)

    def limited(self, records: Iterable[SourceRecord]) -> list[SourceRecord]:
        return list(islice(records, self.max_items_per_dataset))


Source = Callable[[SourceRequest], list[SourceRecord]]
