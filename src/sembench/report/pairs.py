"""Rows -> pairs: the cold and the warm request of an item, and the outcome the backend reports for the warm one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sembench.metrics.rows import RequestRow, is_checked, is_clean, is_failed, is_reused, timed
from sembench.metrics.rows import pairs_of as rows_with_both_arms

Kind = Literal["reuse", "miss", "unknown", "negative"]
KIND_NAMES: Final[dict[Kind, str]] = {
    "reuse": "reuse confirmed",
    "miss": "nothing reused",
    "unknown": "no engine report",
    "negative": "negative control",
}


@dataclass(frozen=True, slots=True)
class Pair:
    row: RequestRow
    kind: Kind
    cold_ms: float
    warm_ms: float

    @property
    def speedup(self) -> float:
        return self.cold_ms / self.warm_ms

    @property
    def label(self) -> str:
        return f"{self.row.item_id} · {self.row.transform} · {self.row.dataset}"


@dataclass(frozen=True, slots=True)
class PairSet:
    """The ``clean`` pairs, and how many others were left out for which reason."""

    clean: tuple[Pair, ...]
    attempted: int
    contaminated: int
    failed: int
    unchecked: int

    @property
    def blended(self) -> tuple[Pair, ...]:
        """All clean pairs except negative controls; misses are included."""
        return tuple(pair for pair in self.clean if pair.kind != "negative")

    def of(self, *kinds: Kind) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.clean if pair.kind in kinds)


def kind_of(row: RequestRow) -> Kind:
    if row.negative_control:
        return "negative"
    reused = is_reused(row)
    if reused is None:
        return "unknown"
    return "reuse" if reused else "miss"


def pairs_of(rows: Sequence[RequestRow], block_size: int | None) -> PairSet:
    both = rows_with_both_arms(rows)
    failed = sum(is_failed(row) for row in both)
    clean = [row for row in both if is_clean(row, block_size)]
    return PairSet(
        clean=tuple(Pair(row, kind_of(row), timed(row.cold) or 0.0, timed(row.warm) or 0.0) for row in clean),
        attempted=len(both),
        contaminated=len(both) - failed - len(clean),
        failed=failed,
        unchecked=sum(not is_checked(row) for row in clean),
    )


def by_transform(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.row.transform, []).append(pair)
    return groups
