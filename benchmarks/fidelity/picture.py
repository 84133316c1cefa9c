"""Mean KL per arm and case in the style of the reports: one row per arm, one colour per case, 95 % intervals.

Nothing is drawn without resvg.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.estimates import Interval
from benchmarks.fidelity.figures import FLOOR, Figures
from sembase.errors import MissingDependencyError
from sembase.onepage.chart import Axis, Chart, DataTable, Whisker, Whiskers
from sembase.onepage.page import style_of
from sembase.onepage.png import chart_png, rasteriser
from sembase.onepage.ticks import category_axis, log_axis

TONES = ("reuse", "miss", "negative", "accent", "bad", "cold", "unknown")
LOWEST = 1e-5  # nats; a logarithmic axis has no zero
_SPREAD = 0.6  # of a row, over which the cases are distributed


@dataclass(frozen=True, slots=True)
class Reading:
    """``low`` and ``high`` are the ends of the interval; None where there is none."""

    arm: str
    case: str
    kl: float
    low: float | None = None
    high: float | None = None


def draw(figures: Sequence[Figures], path: Path) -> list[Path]:
    """Pictures drawn: along the model's own answer in ``path``, along a given text in a file beside it."""
    known = [one for one in figures if one.case != "all"]
    given = path.with_stem(f"{path.stem}-given-text")
    return [
        *picture("KL along its answer", _readings(known, lambda one: one.answer_kl), path),
        *picture("KL along a given text", _readings(known, lambda one: one.kl_mean), given),
    ]


def picture(title: str, readings: Sequence[Reading], path: Path) -> list[Path]:
    return [path] if readings and write_chart(chart(title, readings), path) else []


def write_chart(made: Chart, path: Path) -> bool:
    """Whether it was written."""
    try:
        rasterise = rasteriser("benchmarks", "pictures")
    except MissingDependencyError:
        return False
    path.write_bytes(chart_png(made, style_of("sembench.report"), rasterise))
    return True


def chart(title: str, readings: Sequence[Reading]) -> Chart:
    arms = list(dict.fromkeys(one.arm for one in readings))
    cases = list(dict.fromkeys(one.case for one in readings))
    layers = tuple(
        Whiskers(
            case, TONES[place % len(TONES)], tuple(_whiskers(readings, case, arms, _offset(place, len(cases)))), True
        )
        for place, case in enumerate(cases)
    )
    message = (
        f"Mean KL to a cold prefill by arm; lower is better. Bars: 95 % intervals. {FLOOR}: noise of a cold prefill."
    )
    return Chart("kl", title, message, _axis(readings), category_axis(arms), layers, DataTable((), ()))


def _axis(readings: Sequence[Reading]) -> Axis:
    ends = [max(LOWEST, end) for one in readings for end in (one.kl, one.low, one.high) if end is not None]
    return log_axis("mean KL, nats (log)", ends, lambda value: f"{value:.4f}".rstrip("0").rstrip("."))


def _offset(place: int, cases: int) -> float:
    return _SPREAD * ((place + 0.5) / cases - 0.5)


def _whiskers(readings: Sequence[Reading], case: str, arms: Sequence[str], offset: float) -> list[Whisker]:
    return [
        Whisker(_at(one.kl), arms.index(one.arm) + offset, _end(one.low), _end(one.high), one.arm)
        for one in readings
        if one.case == case
    ]


def _at(kl: float) -> float:
    return max(LOWEST, kl)


def _end(kl: float | None) -> float | None:
    return None if kl is None else _at(kl)


def _readings(figures: Sequence[Figures], kl: Callable[[Figures], Interval]) -> list[Reading]:
    found = [(one, kl(one)) for one in figures]
    return [Reading(one.arm, one.case, each.estimate, each.low, each.high) for one, each in found]
