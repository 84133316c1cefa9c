"""Recomputes a calibration's figures from its readings, in the same way as ``calibrate-noise-floor``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from sembench.paired import median_interval
from sembench.workload.seeded import Draws

_ARMS = ("first", "second")


def figures_of_readings(record: Mapping[str, Any]) -> dict[str, float | None] | None:
    """Mean KL and the upper end of the TTFT ratio's interval; None without readings, block size or seed."""
    readings, config, seed = record.get("readings"), record.get("config"), record.get("seed")
    size = config.get("block_size") if isinstance(config, Mapping) else None
    if not isinstance(readings, list) or not readings or type(size) is not int or type(seed) is not int:
        return None
    clean = [reading for reading in readings if isinstance(reading, Mapping) and _is_clean(reading, size)]
    means = [float(reading["mean_kl"]) for reading in clean if _is_number(reading.get("mean_kl"))]
    interval = median_interval([_ratio(reading, seed) for reading in clean], seed)
    return {
        "mean_kl_topk": statistics.fmean(means) if means else None,
        "ttft_ratio_median_ci95": None if interval is None else interval[1],
    }


def _is_clean(reading: Mapping[str, Any], block_size: int) -> bool:
    """Both requests succeeded, and neither got more than one block from a cache."""
    return isinstance(reading.get("item_id"), str) and all(
        reading.get(f"{arm}_status") == "ok"
        and _is_number(reading.get(f"{arm}_ttft_ms"))
        and reading[f"{arm}_ttft_ms"] > 0
        and not (_is_number(reading.get(f"{arm}_cached_tokens")) and reading[f"{arm}_cached_tokens"] > block_size)
        for arm in _ARMS
    )


def _ratio(reading: Mapping[str, Any], seed: int) -> float:
    """The calibration chose the direction of the ratio at random; the same seed gives the same choice here."""
    ratio = float(reading["first_ttft_ms"] / reading["second_ttft_ms"])
    return ratio if Draws(seed, reading["item_id"], "ratio").uniform() < 0.5 else 1 / ratio


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
