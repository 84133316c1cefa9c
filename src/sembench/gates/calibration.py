"""The noise floor: how far two cold runs of the same prompts differ. A warm run's difference is counted from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from semblend.errors import ContractError

CALIBRATION_VERSION: Final = "sembench.calibration.v1"


def read_noise_floor_kl(path: Path) -> float | None:
    """Mean KL between two cold arms; None if the calibration did not capture log-probabilities."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(f"{path}: not JSON: {error}") from None
    if not isinstance(record, dict) or record.get("calibration_version") != CALIBRATION_VERSION:
        raise ContractError(f"{path}: not a calibration ({CALIBRATION_VERSION})")
    floor = record.get("mean_kl_topk")
    if floor is None:
        return None
    if not isinstance(floor, int | float) or isinstance(floor, bool) or not floor >= 0:
        raise ContractError(f"{path}: mean_kl_topk is {floor!r}")
    return float(floor)
