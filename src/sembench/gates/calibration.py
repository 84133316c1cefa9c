"""The noise floor: how far two cold runs of the same prompts differ. A warm run's difference is counted from there."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from semblend.errors import ContractError

CALIBRATION_VERSION: Final = "sembench.calibration.v1"
_SETTINGS: Final = ("model", "endpoint", "top_logprobs")


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """``mean_kl`` between two cold arms; ``ttft_ratio_high`` ends the 95 % interval of their median TTFT ratio.

    None where the calibration did not measure it. ``config`` is that of the calibrating run.
    """

    mean_kl: float | None = None
    ttft_ratio_high: float | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    def strangers(self, config: Mapping[str, Any]) -> list[str]:
        """Settings in which a run differs from the calibration so that the floor is not its own."""
        return [
            f"{name} {self.config[name]!r}, not {config[name]!r}"
            for name in _SETTINGS
            if name in self.config and name in config and self.config[name] != config[name]
        ]


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
    high = None if interval is None else interval[1]
    config = record.get("config")
    return NoiseFloor(
        _measured(record.get("mean_kl_topk"), "mean_kl_topk", path),
        _measured(high, "ttft_ratio_median_ci95", path),
        config if isinstance(config, dict) else {},
    )


def read_noise_floor_kl(path: Path) -> float | None:
    """Mean KL between two cold arms; None if the calibration did not capture log-probabilities."""
    return read_noise_floor(path).mean_kl


def _measured(value: Any, name: str, path: Path) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ContractError(f"{path}: {name} is {value!r}")
    return float(value)
