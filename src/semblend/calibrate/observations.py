"""The measurements of a calibration: one JSON object per blend, about 100 bytes. Unknown keys are errors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sembase.errors import ConfigurationError
from semblend.contract import PlanShape

_KEYS: Final = {"item", "class", "risk", "share", "kl"}


@dataclass(frozen=True, slots=True)
class Observation:
    """One item at one budget: ``fraction`` of its reused tokens recomputed, ``kl`` nats from its cold answer."""

    item: str
    shape: PlanShape
    risk: float
    fraction: float
    kl: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.risk <= 1.0 or not 0.0 <= self.fraction <= 1.0:
            raise ValueError("risk and share must be between 0 and 1")
        if not (math.isfinite(self.kl) and self.kl >= 0.0):
            raise ValueError("kl must be finite and not negative")


def encode_observation(seen: Observation) -> str:
    record = {"item": seen.item, "class": seen.shape.value, "risk": seen.risk, "share": seen.fraction, "kl": seen.kl}
    return json.dumps(record, allow_nan=False)


def decode_observations(lines: Iterable[str], where: str) -> list[Observation]:
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(_observation(json.loads(line)))
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigurationError(f"{where}, line {number}: not an observation: {error}") from None
    return found


def _observation(record: Any) -> Observation:
    if not isinstance(record, dict) or _KEYS.symmetric_difference(record):
        raise ValueError(f"expected an object with exactly the keys {', '.join(sorted(_KEYS))}")
    numbers = [record[name] for name in ("risk", "share", "kl")]
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in numbers):
        raise ValueError("risk, share and kl must be numbers")
    return Observation(str(record["item"]), PlanShape(record["class"]), *map(float, numbers))
