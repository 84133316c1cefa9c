"""How soon the guard finds a fault: recorded readings in, simulated traffic, false alarms and delays out.

Readings are drawn with replacement, so the traffic is simulated. A fault is drawn at the budget of the sound blends
before it. Ceilings of classes come from the sound readings themselves, so false alarms are flattered.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.console import progress, show_table
from benchmarks.guard.arms import FAULTS, SHARES, SOUND
from benchmarks.guard.rows import OF_ANSWER, OF_FIRST_TOKEN, Row, kl_of, shape_of_row
from semblend.contract import PlanShape
from semblend.guard.sampler import is_sampled
from semblend.guard.tracker import MIN_CEILING_KL, GuardLimits, Tracker

CEILING = 0.02
SAMPLED = 0.05
CLEAN_REQUESTS = 2000
FAULTY_REQUESTS = 20_000
TRIALS = 200
CLASS_FACTOR = 1.5  # a class's own ceiling over the mean of its sound readings
Readings = dict[tuple[PlanShape, str], list[float]]  # measured KL by class and arm


@dataclass(frozen=True, slots=True)
class Watch:
    """What a guard compares, and with which ceiling. The variant for first tokens is not part of the product."""

    name: str
    statistic: str = OF_ANSWER
    class_factor: float | None = None

    def limits(self, shape: PlanShape, clean: Sequence[float]) -> GuardLimits:
        if self.class_factor is None:
            return GuardLimits(ceiling_kl=CEILING)
        own = min(CEILING, max(MIN_CEILING_KL, self.class_factor * statistics.fmean(clean)))
        return GuardLimits(ceiling_kl=CEILING, class_ceilings_kl={shape: own})


WATCHES = (
    Watch(f"answer, {CEILING:g}"),
    Watch(f"answer, class x {CLASS_FACTOR:g}", class_factor=CLASS_FACTOR),
    Watch(f"first token, {CEILING:g}", OF_FIRST_TOKEN),
    Watch(f"first token, class x {CLASS_FACTOR:g}", OF_FIRST_TOKEN, class_factor=CLASS_FACTOR),
)


def detection(rows: Sequence[Row]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for watch in WATCHES:
        readings = _readings(rows, watch.statistic)
        for shape in PlanShape:
            kept += _of_class(watch, readings, shape)
    table = [tuple(f"{v:.4f}" if isinstance(v, float) else v for v in row.values()) for row in kept]
    title = f"guard at {SAMPLED:.0%} sampling, {CLEAN_REQUESTS} clean requests, then the fault (traffic simulated)"
    show_table(title, tuple(kept[0]) if kept else (), table)
    return kept


def _of_class(watch: Watch, readings: Readings, shape: PlanShape) -> list[dict[str, Any]]:
    share = _cleanest(readings, shape)
    if share is None:
        progress(f"{watch.name}: {shape.value}: no recorded budget has a mean KL under {CEILING}; nothing to guard")
        return []
    clean = readings[shape, f"{SOUND}@{share:g}"]
    alarms = sum(_first_alarm(watch, clean, [], trial, shape) is not None for trial in range(TRIALS))
    found = []
    for fault in FAULTS:
        broken = readings[shape, f"{fault}@{share:g}"]
        row = {
            "class": shape.value,
            "guard": watch.name,
            "share": share,
            "items": len(clean),
            "clean mean": _mean(clean),
            "fault": fault,
            "fault mean": _mean(broken),
            "false alarms": f"{alarms} of {TRIALS}",
        }
        found.append(row | _delays(watch, clean, broken, shape))
    return found


def _readings(rows: Sequence[Row], statistic: str) -> Readings:
    found: Readings = defaultdict(list)
    for row in rows:
        if row["runs"]:
            found[shape_of_row(row), row["arm"]].append(kl_of(row, statistic))
    return found


def _cleanest(readings: Readings, shape: PlanShape) -> float | None:
    """The cheapest budget whose mean is under the ceiling."""
    for share in SHARES:
        mean = _mean(readings[shape, f"{SOUND}@{share:g}"])
        if mean is not None and mean <= CEILING:
            return share
    return None


def _mean(readings: Sequence[float]) -> float | None:
    return statistics.fmean(readings) if readings else None


def _delays(watch: Watch, clean: Sequence[float], broken: Sequence[float], shape: PlanShape) -> dict[str, Any]:
    """Nothing where the fault was not recorded at this budget."""
    if not broken:
        return {"found": None, "median requests": None, "p95 requests": None}
    alarms = [_first_alarm(watch, clean, broken, trial, shape) for trial in range(TRIALS)]
    delays = [delay for delay in alarms if delay]
    return {
        "found": f"{len(delays)} of {TRIALS}",
        "median requests": statistics.median(delays) if delays else None,
        "p95 requests": float(np.quantile(delays, 0.95)) if delays else None,
    }


def _first_alarm(
    watch: Watch, clean: Sequence[float], broken: Sequence[float], trial: int, shape: PlanShape
) -> int | None:
    """Requests from the fault to the alarm; 0 for an alarm before it, None for no alarm at all."""
    random = np.random.default_rng([trial, len(broken)])
    tracker = Tracker(watch.limits(shape, clean))
    for request in _sampled(trial):
        if request >= CLEAN_REQUESTS and not broken:
            return None
        pool = clean if request < CLEAN_REQUESTS else broken
        if tracker.observe("m", shape, pool[int(random.integers(len(pool)))]):
            return max(0, request + 1 - CLEAN_REQUESTS)
    return None


@lru_cache(maxsize=TRIALS)
def _sampled(trial: int) -> tuple[int, ...]:
    """The same requests for every class and fault; hashing them again would be most of the work. 40 KB a trial."""
    requests = range(CLEAN_REQUESTS + FAULTY_REQUESTS)
    return tuple(request for request in requests if is_sampled(f"{trial}-{request}", SAMPLED))
