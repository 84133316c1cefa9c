"""Charts over capacity: the miss-ratio curve of each policy between its bounds, and what sampling makes of it."""

from __future__ import annotations

from typing import Final

from onepage.chart import Chart, Curve, DataTable, Dot, Dots, Layer
from onepage.formats import count
from onepage.ticks import linear_axis, log_axis
from semantic_kv.experiment.curves import Curves, SampledCurve
from semantic_kv.experiment.study import Study
from semantic_kv.report.formats import percent, seconds, tick_count, tick_share
from semantic_kv.report.tones import CYCLE, Tone

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
        f"Share of missed {study.config.unit}, {len(capacities)} capacities, exact; least over all: {best.name}.",
        log_axis(f"capacity ({study.config.unit})", [float(size) for size in capacities], tick_count),
        linear_axis("miss ratio", _floor(curves), 1.0, tick_share),
        tuple(layers),
        table,
        "Dashed: the infinite cache (ceiling) and the clairvoyant, below which no policy can come."
        if curves.bounds
        else "",
    )


def sampling_chart(study: Study, curves: Curves) -> Chart | None:
    """Of the first policy: exact as a line, each rate's mean as dots."""
    if not curves.sampled:
        return None
    exact = curves.policies[0]
    rows = [each for each in curves.sampled if each.name == exact.name]
    layers: list[Layer] = [Curve(f"{exact.name}, exact", "c1", _missed(curves.capacities, exact.hit_ratios))]
    layers += [
        Dots(
            f"{percent(each.rate, 0)} sampled",
            tone,
            tuple(Dot(*at) for at in _missed(curves.capacities, each.mean)),
            "ring",
        )
        for tone, each in zip(CYCLE[1:], rows, strict=False)
    ]
    told = "; ".join(f"at {percent(each.rate, 0)} {100 * each.mean_absolute_error:.2f} pp" for each in rows)
    return Chart(
        "sampled_miss_ratio_curve",
        "What a sample would have said",
        f"Mean absolute error of one draw against the exact curve: {told}.",
        log_axis(f"capacity ({study.config.unit})", [float(size) for size in curves.capacities], tick_count),
        linear_axis("miss ratio", _floor(curves), 1.0, tick_share),
        tuple(layers),
        sampling_table(curves.sampled),
        "Whole sessions or subtrees are drawn by a hash, so prefixes stay whole; dots are the mean of "
        f"{rows[0].draws} draws, each in a cache scaled by the rate.",
    )


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
    """Where the axis begins: at zero unless the curves stay far above it."""
    least = min(1 - max(each.hit_ratios) for each in (*curves.policies, *curves.bounds))
    return 0.0 if least < 0.4 else least
