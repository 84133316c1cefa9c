"""What a profile is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sembench.workload.record import SourceRecord


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """Empty ``datasets`` means the profile's own default; None for ``max_items_per_dataset`` means all there are."""

    datasets: tuple[str, ...] = ()
    data_dir: Path | None = None
    max_items_per_dataset: int | None = None
    seed: int = 0

    def limited(self, records: Iterable[SourceRecord]) -> list[SourceRecord]:
        return list(islice(records, self.max_items_per_dataset))


Source = Callable[[SourceRequest], list[SourceRecord]]
