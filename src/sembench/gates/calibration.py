"""The noise floor: how far two cold runs of the same prompts differ. Warm runs are judged relative to it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sembase.errors import ContractError
from sembench.gates.cold_readings import figures_of_readings

CALIBRATION_VERSION: Final = "sembench.calibration.v1"
_SETTINGS: Final = ("model", "endpoint", "recipient_max_tokens", "top_logprobs")
_ENGINE: Final = ("name", "version")
_RELATIVE_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """``mean_kl`` between two cold arms; ``ttft_ratio_high`` is the upper end of the 95 % interval of their median
    TTFT ratio. None if the calibration did not measure it.

    ``config``, ``manifest_digest`` and ``engine`` describe the calibration run. ``faults`` lists figures that do not
    follow from its readings.
    """

    mean_kl: float | None = None
    ttft_ratio_high: float | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    manifest_digest: str | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    def different_settings(self, config: Mapping[str, Any]) -> list[str]:
        """Settings in which a run differs from the calibration, so that this floor does not apply to it."""
        return [
            f"{name} {self.config[name]!r}, not {config[name]!r}"
            for name in _SETTINGS
            if name in self.config and name in config and self.config[name] != config[name]
        ]

    def mismatches(self, result: Mapping[str, Any]) -> list[str]:
        """Why this floor does not apply to the result: other settings, missing settings, or inconsistent figures."""
        engine = result["engine"] if isinstance(result["engine"], Mapping) else {}
        digest = result["run"].get("manifest_digest")
        found = list(self.faults)
        if missing := [name for name in _SETTINGS if name not in self.config]:
            found.append(f"the calibration does not record {', '.join(missing)}")
        different = self.different_settings(result["config"])
        if self.manifest_digest != digest:
            different.append(f"manifest_digest {self.manifest_digest!r}, not {digest!r}")
        different += [
            f"engine {name} {self.engine.get(name)!r}, not {engine.get(name)!r}"
            for name in _ENGINE
            if self.engine.get(name) != engine.get(name)
        ]
        return [*found, f"the calibration is from a different run: {'; '.join(different)}"] if different else found


def read_noise_floor(path: Path) -> NoiseFloor:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(f"{path}: not JSON: {error}") from None
    if not isinstance(record, dict) or record.get("calibration_version") != CALIBRATION_VERSION:
        raise ContractError(f"{path}: not a calibration ({CALIBRATION_VERSION})")
    interval = record.get("ttft_ratio_median_ci95")
    if interval is not None and (not isinstance(interval, list) or len(interval) != 2):
        raise ContractError(f"{path}: ttft_ratio_median_ci95 is {interval!r}, not [low, high]")
    high = _measured(None if interval is None else interval[1], "ttft_ratio_median_ci95", path)
    mean_kl = _measured(record.get("mean_kl_topk"), "mean_kl_topk", path)
    config, engine, digest = record.get("config"), record.get("engine"), record.get("manifest_digest")
    return NoiseFloor(
        mean_kl,
        high,
        config if isinstance(config, dict) else {},
        digest if isinstance(digest, str) else None,
        engine if isinstance(engine, dict) else {},
        _faults(record, mean_kl, high),
    )


def _faults(record: Mapping[str, Any], mean_kl: float | None, high: float | None) -> tuple[str, ...]:
    computed = figures_of_readings(record)
    if computed is None:
        return ("the calibration holds no readings from which its figures could be recomputed",)
    stated = {"mean_kl_topk": mean_kl, "ttft_ratio_median_ci95": high}
    return tuple(
        f"{name} is {stated[name]!r}, but its readings give {value!r}"
        for name, value in computed.items()
        if not _same(stated[name], value)
    )


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=_RELATIVE_TOLERANCE, abs_tol=1e-12)


def _measured(value: Any, name: str, path: Path) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ContractError(f"{path}: {name} is {value!r}")
    return float(value)
