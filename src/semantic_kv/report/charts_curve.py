"""Charts over capacity: the miss-ratio curve of each policy with the bounds, and sampled curves with their error."""

from __future__ import annotations

from typing import Final

from semantic_kv.experiment.curves import Curves, SampledCurve
from semantic_kv.experiment.study import Study
from semantic_kv.report.formats import percent, seconds, tick_count, tick_share
from semantic_kv.report.tones import CYCLE, Tone
from sembase.onepage.chart import Chart, Curve, DataTable, Dot, Dots, Layer, Mark
from sembase.onepage.formats import count
from sembase.onepage.ticks import linear_axis, log_axis

_MARKS: Final[tuple[Mark, ...]] = ("ring", "disc", "diamond")
_BOUND_TONES: Final[dict[str, Tone]] = {"ceiling": "muted", "clairvoyant": "bound"}


def curve_chart(study: Study, curves: Curves) -> Chart:
    capacities = curves.capacities
    layers: list[Layer] = [
        Curve(each.name, _BOUND_TONES[each.name], _missed(capacities, each.hit_ratios), dashed=True)
        for each in curves.bounds
    ]
    layers += [
        Curve(curve.name, tone, _missed(capacities, curve.hit_ratios))
        for tone, curve in zip(CYCLE, curves.policies, strict=False)
    ]
    best = max(curves.policies, key=lambda curve: sum(curve.hit_ratios))
    table = DataTable(
        ("capacity", *(each.name for each in (*curves.policies, *curves.bounds))),
        tuple(
            (count(size), *(percent(1 - each.hit_ratios[i], 2) for each in (*curves.policies, *curves.bounds)))
            for i, size in enumerate(capacities)
        ),
    )
    return Chart(
        "miss_ratio_curve",
        "Miss ratio over capacity",
        f"Fraction of missed {study.config.unit}, exact at {len(capacities)} capacities; lowest overall: {best.name}.",
        log_axis(f"capacity ({study.config.unit})", [float(size) for size in capacities], tick_count),
        linear_axis("miss ratio", _floor(curves), 1.0, tick_share),
        tuple(layers),
        table,
        "Dashed: the infinite cache (ceiling) and the clairvoyant; no policy can be below the clairvoyant."
        if curves.bounds
        else "",
    )


def sampling_chart(study: Study, curves: Curves) -> Chart | None:
    """One colour per policy: the exact curve as a line, the mean of each sample rate as dots of one shape."""
    if not curves.sampled:
        return None
    rates = list(dict.fromkeys(each.rate for each in curves.sampled))
    layers: list[Layer] = []
    for tone, exact in zip(CYCLE, curves.policies, strict=False):
        layers.append(Curve(f"{exact.name}, exact", tone, _missed(curves.capacities, exact.hit_ratios)))
        layers += [
            Dots(
                f"{exact.name}, {percent(each.rate, _digits(each.rate))} sampled",
                tone,
                tuple(Dot(*at) for at in _missed(curves.capacities, each.mean)),
                _MARKS[rates.index(each.rate) % len(_MARKS)],
            )
            for each in curves.sampled
            if each.name == exact.name
        ]
    errors = "; ".join(_errors_at(rate, curves.sampled) for rate in rates)
    left_out = len(curves.policies) - len(CYCLE)
    note = f" {left_out} more policies are only in the table." if left_out > 0 else ""
    return Chart(
        "sampled_miss_ratio_curve",
        "Curves from samples",
        f"Mean absolute error of one draw against the exact curve: {errors}.{note}",
        log_axis(f"capacity ({study.config.unit})", [float(size) for size in curves.capacities], tick_count),
        linear_axis("miss ratio", _floor(curves), 1.0, tick_share),
        tuple(layers),
        sampling_table(curves.sampled),
        "Whole sessions or subtrees are sampled by a hash, so prefixes stay intact; dots are the mean of "
        f"{curves.sampled[0].draws} draws, each in a cache scaled by the rate.",
    )


def _errors_at(rate: float, sampled: tuple[SampledCurve, ...]) -> str:
    errors = sorted(100 * each.mean_absolute_error for each in sampled if each.rate == rate)
    shown = f"{errors[0]:.2f}" if len(errors) == 1 else f"{errors[0]:.2f} to {errors[-1]:.2f}"
    return f"at {percent(rate, _digits(rate))} {shown} pp"


def _digits(rate: float) -> int:
    """Enough digits that half a percent does not read 0 %."""
    return 0 if rate >= 0.01 else 1 if rate >= 0.001 else 2


def sampling_table(sampled: tuple[SampledCurve, ...]) -> DataTable:
    return DataTable(
        ("policy", "rate", "draws", "references", "mean error", "largest error", "time per draw"),
        tuple(
            (
                each.name,
                percent(each.rate, 1),
                str(each.draws),
                f"{each.sampled_references:,} / {each.references:,}",
                f"{100 * each.mean_absolute_error:.2f} pp",
                f"{100 * each.largest_error:.2f} pp",
                seconds(each.seconds),
            )
            for each in sampled
        ),
    )


def _missed(capacities: tuple[int, ...], hit_ratios: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
    return tuple((float(size), 1 - ratio) for size, ratio in zip(capacities, hit_ratios, strict=True))


def _floor(curves: Curves) -> float:
    """Start of the axis: zero unless all curves are far above it."""
    least = min(1 - max(each.hit_ratios) for each in (*curves.policies, *curves.bounds))
    return 0.0 if least < 0.4 else least
