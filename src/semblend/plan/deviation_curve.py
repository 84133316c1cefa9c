"""How far each layer's KV deviates when the whole context before it differs, and the file format of such a curve.

A curve is measured per model and kept in the calibration file, or it is a preset: a plausible shape that was not
measured on that model, and is marked as such. It describes a model; nothing is recomputed by layer (ADR 0006).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sembase.errors import ConfigurationError

SCHEMA: Final = "semblend.calibration.v1"
_KEYS: Final = {"schema", "model", "revision", "layers", "deviation", "noise_floor", "provenance"}


class Provenance(StrEnum):
    MEASURED = "measured"
    PRESET = "preset"


@dataclass(frozen=True, slots=True)
class DeviationCurve:
    """``deviation[l]`` is layer ``l``'s relative deviation; two cold runs of one prompt differ by ``noise_floor``."""

    model: str
    revision: str | None
    deviation: tuple[float, ...]
    noise_floor: float
    provenance: Provenance

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigurationError("a deviation curve must name its model")
        if not self.deviation:
            raise ConfigurationError("a deviation curve needs at least one layer")
        if any(not (math.isfinite(value) and value >= 0) for value in (*self.deviation, self.noise_floor)):
            raise ConfigurationError("deviations and the noise floor must be finite and not negative")

    @property
    def layers(self) -> int:
        return len(self.deviation)


@dataclass(frozen=True, slots=True)
class Bathtub:
    """High at both ends, flat in between. Decay lengths are counted in layers."""

    base: float
    early: float
    early_decay: float
    late: float
    late_decay: float

    def at(self, layer: int, layers: int) -> float:
        rise = self.early * math.exp(-layer / self.early_decay)
        fall = self.late * math.exp(-(layers - 1 - layer) / self.late_decay)
        return min(1.0, self.base + rise + fall)


# Shapes, not measurements. Keys are architectures as a model's configuration names them, never parts of a model's name.
PRESETS: Final = {
    "qwen2": Bathtub(base=0.12, early=0.15, early_decay=3.0, late=0.35, late_decay=3.0),
    "llama": Bathtub(base=0.12, early=0.45, early_decay=2.5, late=0.15, late_decay=4.0),
    "generic": Bathtub(base=0.12, early=0.35, early_decay=3.0, late=0.20, late_decay=4.0),
}


def preset_curve(architecture: str, layers: int) -> DeviationCurve:
    """The preset of an architecture for an explicit number of layers. ``generic`` is used only when named."""
    shape = PRESETS.get(architecture)
    if shape is None:
        raise ConfigurationError(f"no preset for architecture '{architecture}'; known: {', '.join(sorted(PRESETS))}")
    if layers < 1:
        raise ConfigurationError(f"a model has at least one layer, not {layers}")
    deviation = tuple(shape.at(layer, layers) for layer in range(layers))
    return DeviationCurve(f"preset:{architecture}", None, deviation, 0.0, Provenance.PRESET)


def encode_calibration(curve: DeviationCurve) -> str:
    record = {
        "schema": SCHEMA,
        "model": curve.model,
        "revision": curve.revision,
        "layers": curve.layers,
        "deviation": list(curve.deviation),
        "noise_floor": curve.noise_floor,
        "provenance": curve.provenance.value,
    }
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def decode_calibration(text: str) -> DeviationCurve:
    """Read a calibration file. An unknown or missing key, or a value of the wrong type, is an error that names it."""
    try:
        record = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigurationError(f"calibration: not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ConfigurationError("calibration: not a JSON object")
    if record.get("schema") != SCHEMA:
        raise ConfigurationError(f"calibration: schema {record.get('schema')!r} is not {SCHEMA!r}")
    if wrong := sorted(_KEYS.symmetric_difference(record)):
        raise ConfigurationError(f"calibration: unknown or missing keys: {', '.join(wrong)}")
    deviation = record["deviation"]
    _require(isinstance(record["model"], str), "model is not a string")
    _require(record["revision"] is None or isinstance(record["revision"], str), "revision is neither a string nor null")
    _require(isinstance(deviation, list) and all(map(_is_number, deviation)), "deviation is not a list of numbers")
    _require(
        type(record["layers"]) is int and record["layers"] == len(deviation), "layers is not the length of deviation"
    )
    _require(_is_number(record["noise_floor"]), "noise_floor is not a number")
    _require(record["provenance"] in [p.value for p in Provenance], "provenance is neither 'measured' nor 'preset'")
    return DeviationCurve(
        model=record["model"],
        revision=record["revision"],
        deviation=tuple(float(value) for value in deviation),
        noise_floor=float(record["noise_floor"]),
        provenance=Provenance(record["provenance"]),
    )


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ConfigurationError(f"calibration: {problem}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
