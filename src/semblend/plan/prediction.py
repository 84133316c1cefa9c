"""The KL that a blended answer is predicted to have, from its context risk and recompute budget: one law per class.

``floor + scale * risk * exp(-decay * fraction)``, times a factor that a given quantile of the calibration items stayed
below. A law is fitted by ``semblend.calibrate`` and read by the gate; see docs/reference/calibration-format.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sembase.errors import ConfigurationError
from semblend.contract import PlanShape
from semblend.plan.deviation_curve import DeviationCurve, decode_calibration, encode_calibration

SCHEMA: Final = "semblend.calibration.v2"
_KEYS: Final = {"schema", "curve", "kl_floor", "quantile", "statistic", "laws"}
_OPTIONAL: Final = {"policy"}
_LAW_KEYS: Final = {"scale", "decay", "factor", "items", "largest_risk"}


@dataclass(frozen=True, slots=True)
class Law:
    """The law of one class. ``factor`` is the upper quantile of measured over fitted KL, ``items`` the sample size.

    Beyond ``largest_risk`` nothing was measured, so nothing is predicted.
    """

    scale: float
    decay: float
    factor: float
    items: int
    largest_risk: float

    def __post_init__(self) -> None:
        if any(not (math.isfinite(value) and value >= 0) for value in (self.scale, self.decay, self.factor)):
            raise ConfigurationError("calibration: scale, decay and factor must be finite and not negative")
        if self.items < 1 or not 0.0 <= self.largest_risk <= 1.0:
            raise ConfigurationError("calibration: a law needs at least one item and a largest_risk between 0 and 1")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Everything the gates read. ``statistic`` describes which KL was measured; ``laws`` may be empty.

    The laws hold where ``policy`` selects the recomputed tokens; None: the file does not say which one did.
    """

    curve: DeviationCurve
    kl_floor: float
    quantile: float
    statistic: str
    laws: Mapping[PlanShape, Law]
    policy: str | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.kl_floor) and self.kl_floor >= 0):
            raise ConfigurationError("calibration: kl_floor must be finite and not negative")
        if not 0.0 < self.quantile < 1.0:
            raise ConfigurationError("calibration: quantile must be between 0 and 1")

    def fitted_kl(self, shape: PlanShape, risk: float, fraction: float) -> float | None:
        """The central estimate, without the factor; ``None`` where nothing was measured."""
        law = self.laws.get(shape)
        if law is None or risk > law.largest_risk:
            return None
        return self.kl_floor + law.scale * risk * math.exp(-law.decay * fraction)

    def predicted_kl(self, shape: PlanShape, risk: float, fraction: float) -> float | None:
        """The KL that ``quantile`` of the items stayed below; ``None`` where nothing was measured."""
        fitted = self.fitted_kl(shape, risk, fraction)
        return None if fitted is None else fitted * self.laws[shape].factor

    def min_fraction(self, shape: PlanShape, risk: float, ceiling: float, max_fraction: float) -> float | None:
        """The smallest fraction that keeps the prediction at or below ``ceiling``; ``None`` if it exceeds
        ``max_fraction`` or does not exist."""
        without = self.predicted_kl(shape, risk, 0.0)
        if without is None:
            return None
        if without <= ceiling:
            return 0.0
        law = self.laws[shape]
        room = ceiling / law.factor - self.kl_floor
        if room <= 0.0 or law.decay == 0.0:
            return None
        fraction = math.log(law.scale * risk / room) / law.decay
        fraction += 1e-9 * (1.0 + fraction)  # rounding must not end above the ceiling
        return fraction if fraction <= max_fraction else None


def encode_prediction(calibration: Calibration) -> str:
    record = {
        "schema": SCHEMA,
        "curve": json.loads(encode_calibration(calibration.curve)),
        "kl_floor": calibration.kl_floor,
        "quantile": calibration.quantile,
        "statistic": calibration.statistic,
        "policy": calibration.policy,
        "laws": {
            shape.value: {name: getattr(law, name) for name in sorted(_LAW_KEYS)}
            for shape, law in sorted(calibration.laws.items())
        },
    }
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def decode_prediction(text: str) -> Calibration:
    """Read a calibration file of either version; a file of version 1 has a curve and no law."""
    try:
        record = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigurationError(f"calibration: not JSON: {error}") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        curve = decode_calibration(text)
        return Calibration(curve, 0.0, 0.9, "none measured", {})
    if wrong := sorted(_KEYS.symmetric_difference(record) - _OPTIONAL):
        raise ConfigurationError(f"calibration: unknown or missing keys: {', '.join(wrong)}")
    try:
        laws = {PlanShape(name): _law(each) for name, each in record["laws"].items()}
        curve = decode_calibration(json.dumps(record["curve"]))
        floor, quantile = float(record["kl_floor"]), float(record["quantile"])
        policy = record.get("policy")
        if policy is not None and not isinstance(policy, str):
            raise ValueError("policy must be a name")
        return Calibration(curve, floor, quantile, str(record["statistic"]), laws, policy)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"calibration: {error}") from None


def _law(record: dict[str, Any]) -> Law:
    if wrong := sorted(_LAW_KEYS.symmetric_difference(record)):
        raise ValueError(f"unknown or missing keys of a law: {', '.join(wrong)}")
    return Law(
        float(record["scale"]),
        float(record["decay"]),
        float(record["factor"]),
        int(record["items"]),
        float(record["largest_risk"]),
    )
