"""Rows of one run into figures per arm and case: means with bootstrap intervals, tails, flips with their interval."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.estimates import Interval, median_interval

DRAWS = 4_000
FLOOR = "floor"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figures:
    """``flips`` of ``answerable``: the cold answer is right and the other is not. ``ttft_ratio``: cold over ours.

    ``kl_mean`` and the other KL figures are along a given text; ``answer_kl`` is along the cold model's own answer. Of
    ``items`` answers, ``kept`` are identical.

    ``computed_share`` of the claim is gaps and recomputed tokens; ``probe_share`` is what selection computes in
    addition.
    """

    arm: str
    case: str
    items: int
    kl_mean: Interval
    kl_p95: float
    kl_worst: float
    kl_sources: dict[str, float]
    answer_kl: Interval
    kept: int
    ppl_ratio: Interval
    top1: Interval
    flips: int
    answerable: int
    flips_interval: tuple[float, float] | None
    computed_share: float | None
    probe_share: float | None
    groups: float | None
    ttft_ratio: Interval | None

    @property
    def whole_share(self) -> float | None:
        """Everything computed before the engine's own step, over the claim."""
        return None if self.computed_share is None else self.computed_share + (self.probe_share or 0.0)

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def read_rows(paths: Iterable[Path]) -> list[Row]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def done_in(path: Path) -> set[tuple[str, str]]:
    """Items and arms that an earlier run left; a half-written last line is removed."""
    if not path.is_file():
        return set()
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    path.write_text("".join(lines))
    return {(row["item"], row["arm"]) for row in map(json.loads, lines)}


def figures_of(rows: Sequence[Row]) -> list[Figures]:
    """One per arm and case in order of appearance, then one per arm over all cases."""
    rows = [row for row in rows if "declined" not in row]
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    cases = [*dict.fromkeys(row["case"] for row in rows), "all"]
    made = []
    for case in cases:
        for arm in arms:
            group = [row for row in rows if row["arm"] == arm and case in (row["case"], "all")]
            if group:
                made.append(_figures(arm, case, group))
    return made


def declined_of(rows: Sequence[Row]) -> dict[tuple[str, str], int]:
    """How many items of an arm and case were declined; they are prefilled by the engine and not in any mean."""
    return dict(Counter((row["arm"], row["case"]) for row in rows if "declined" in row))


@dataclass(frozen=True, slots=True)
class Answers:
    """Of ``asked`` questions the cold model gets ``answerable`` right; ``flips`` of those are wrong when blended.

    ``floor_flips`` are wrong too when the same cold prompt is computed in pieces; ``beyond`` are flips that are not.
    """

    arm: str
    group: str
    asked: int
    answerable: int
    flips: int
    floor_flips: int
    beyond: int

    def shown(self) -> str:
        interval = wilson(self.beyond, self.answerable)
        between = "no interval" if interval is None else f"95 % interval {interval[0]:.1%} to {interval[1]:.1%}"
        return (
            f"answerable: {self.answerable} of {self.asked}, flips: {self.flips}, beyond the floor: {self.beyond} "
            f"({between}), floor flips: {self.floor_flips}"
        )


def answers_of(rows: Sequence[Row]) -> list[Answers]:
    """One per arm, case and source whose answers are known, and one per arm over all of them."""
    asked = [row for row in rows if row.get("right") is not None]
    kept = {row["item"]: row["right"] for row in asked if row["arm"] == FLOOR}
    arms = dict.fromkeys(row["arm"] for row in asked if row["arm"] != FLOOR)
    groups = [*dict.fromkeys(f"{row['case']}, {row['source']}" for row in asked), "all"]
    made = []
    for group in groups:
        for arm in arms:
            mine = [r for r in asked if r["arm"] == arm and group in (f"{r['case']}, {r['source']}", "all")]
            right = [row for row in mine if row["cold_right"]]
            wrong = [row for row in right if not row["right"]]
            noise = sum(not kept.get(row["item"], True) for row in right)
            beyond = sum(kept.get(row["item"], True) for row in wrong)
            if mine:
                made.append(Answers(arm, group, len(mine), len(right), len(wrong), noise, beyond))
    return made


def _figures(arm: str, case: str, rows: Sequence[Row]) -> Figures:
    kl = [float(np.mean(row["kl"])) for row in rows]
    positions = np.concatenate([row["kl"] for row in rows])
    right = [row for row in rows if row["cold_right"]]
    flips = sum(not row["right"] for row in right)
    served = [row for row in rows if "computed_tokens" in row]
    times = [row["cold_ms"] / row["first_token_ms"] for row in rows if row["cold_ms"]]
    sources = dict.fromkeys(row["source"] for row in rows)
    return Figures(
        arm,
        case,
        len(rows),
        mean_interval(kl),
        float(np.quantile(positions, 0.95)),
        float(positions.max()),
        {s: float(np.mean([k for k, row in zip(kl, rows, strict=True) if row["source"] == s])) for s in sources},
        mean_interval([float(np.mean(row["answer_kl"])) for row in rows]),
        sum(row["answer_kept"] for row in rows),
        mean_interval([row["log_loss"] for row in rows], math.exp),
        mean_interval([row["top1"] for row in rows]),
        flips,
        len(right),
        wilson(flips, len(right)),
        _ratio(served, "computed_tokens", "claimed_tokens"),
        float(np.mean(probes)) if (probes := [row["probe_share"] for row in served if "probe_share" in row]) else None,
        float(np.mean([row["groups"] for row in served])) if served else None,
        median_interval(times) if times else None,
    )


def _ratio(rows: Sequence[Row], part: str, whole: str) -> float | None:
    return sum(row[part] for row in rows) / sum(row[whole] for row in rows) if rows else None


def mean_interval(values: Sequence[float], shown: Callable[[float], float] = float, seed: int = 1) -> Interval:
    """The mean and the 95 % interval of resampling items; ``shown`` is monotone and applied last."""
    array = np.asarray(values, np.float64)
    drawn = array[np.random.default_rng(seed).integers(0, array.size, (DRAWS, array.size))].mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(array.size, shown(float(array.mean())), shown(float(low)), shown(float(high)))


def wilson(events: int, trials: int, deviations: float = 1.96) -> tuple[float, float] | None:
    """The 95 % interval of a rate, valid also at 0 of many; None without trials."""
    if not trials:
        return None
    rate, square = events / trials, deviations**2
    centre = (rate + square / (2 * trials)) / (1 + square / trials)
    half = deviations * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials**2)) / (1 + square / trials)
    return max(0.0, centre - half), min(1.0, centre + half)
