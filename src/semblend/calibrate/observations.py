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
_OPTIONAL: Final = {"policy"}


@dataclass(frozen=True, slots=True)
class Observation:
    """One item at one budget: ``fraction`` of its reused tokens recomputed, ``kl`` nats from its cold answer.

    ``policy`` selected the recomputed tokens; None: none were, or it is not known.
    """

    item: str
    shape: PlanShape
    risk: float
    fraction: float
    kl: float
    policy: str | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.risk <= 1.0 or not 0.0 <= self.fraction <= 1.0:
            raise ValueError("risk and share must be between 0 and 1")
        if not (math.isfinite(self.kl) and self.kl >= 0.0):
            raise ValueError("kl must be finite and not negative")


def encode_observation(seen: Observation) -> str:
    record = {"item": seen.item, "class": seen.shape.value, "risk": seen.risk, "share": seen.fraction, "kl": seen.kl}
    if seen.policy is not None:
        record["policy"] = seen.policy
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
    if not isinstance(record, dict) or _KEYS.symmetric_difference(record) - _OPTIONAL:
        raise ValueError(f"expected an object with the keys {', '.join(sorted(_KEYS))} and no others but policy")
    numbers = [record[name] for name in ("risk", "share", "kl")]
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in numbers):
        raise ValueError("risk, share and kl must be numbers")
    policy = record.get("policy")
    if policy is not None and not isinstance(policy, str):
        raise ValueError("policy must be a name")
    risk, fraction, kl = map(float, numbers)
    return Observation(str(record["item"]), PlanShape(record["class"]), risk, fraction, kl, policy)
