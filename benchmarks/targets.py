"""Numbers of repeated measurements, and a target beside each: PASS or NOT REACHED, never silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and tail of ``n`` measurements."""

    n: int
    p50: float
    p99: float
    low: float
    high: float
    quartile_range: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        if not values:
            return None
        array = np.asarray(values, dtype=np.float64)
        q1, p50, q3, p99 = np.quantile(array, [0.25, 0.5, 0.75, 0.99])
        return cls(array.size, float(p50), float(p99), float(array.min()), float(array.max()), float(q3 - q1))


@dataclass(frozen=True, slots=True)
class Verdict:
    """``measured`` None means that nothing was measured, which is not a pass."""

    name: str
    comparison: Literal["<=", ">=", "=="]
    limit: float
    measured: float | None
    unit: str = ""
    is_law: bool = False

    @property
    def holds(self) -> bool:
        if self.measured is None:
            return False
        if self.comparison == "<=":
            return self.measured <= self.limit
        return self.measured >= self.limit if self.comparison == ">=" else self.measured == self.limit

    @property
    def word(self) -> str:
        if self.measured is None:
            return "NOT MEASURED"
        if self.holds:
            return "PASS"
        return "VIOLATED" if self.is_law else "NOT REACHED"

    def as_record(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.word}
