"""Section: time to first token, cold and warm, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sembase.onepage.chart import Chart, Curve, DataTable, Dot, Dots, Mark, Rule, Whisker, Whiskers
from sembase.onepage.formats import NOT_MEASURED, count, plural, tick_ms
from sembase.onepage.section import Section, card, columns, figure, missing, table
from sembase.onepage.ticks import category_axis, linear_axis, log_axis
from sembench.report.estimates import Estimate, median_estimate
from sembench.report.formats import milliseconds, ratio, tick_ratio, tick_share
from sembench.report.headline import blended, reused_only
from sembench.report.pairs import KIND_NAMES, Kind, Pair, PairSet, by_transform
from sembench.report.subject import Subject
from sembench.report.tones import Tone

MARKS: Final[dict[Kind, tuple[Tone, Mark]]] = {
    "unknown": ("unknown", "ring"),
    "negative": ("negative", "diamond"),
    "miss": ("miss", "ring"),
    "reuse": ("reuse", "disc"),
}
_PERCENTS: Final = (50, 90, 95, 99)


def section(subject: Subject) -> Section:
    pairs = subject.pairs
    if not pairs.clean:
        why = _why_no_pairs(subject)
        return Section("ttft", "Time to first token", "", (missing("Cold and warm TTFT", why),))
    charts = (scatter(pairs), cumulative(pairs), strips(subject))
    drawn = [figure(chart, subject.prefix) for chart in charts]
    drawn.append(card("By transform", table(_transforms(pairs)), _noise(subject)))
    left_out = (
        f"{plural(pairs.attempted, 'pair')} attempted, {len(pairs.clean):,} clean, {pairs.contaminated:,} contaminated"
    )
    unchecked = f", {pairs.unchecked:,} of the clean ones without a contamination check" if pairs.unchecked else ""
    lead = (
        f"Every item is requested twice: cold, and warm after its donors were registered. {left_out}, "
        f"{pairs.failed:,} failed{unchecked}. Only clean pairs are shown."
    )
    return Section("ttft", "Time to first token", lead, (columns(*drawn),), charts)


def _why_no_pairs(subject: Subject) -> str:
    if subject.pairs.attempted:
        return (
            f"{plural(subject.pairs.attempted, 'pair')} attempted, none clean: "
            f"{subject.pairs.contaminated:,} contaminated, {subject.pairs.failed:,} failed."
        )
    if subject.evidence == "offline":
        return "This is an offline run without server requests. Use run-live-gateway --paired to measure times."
    return "The run has no pairs. Use --paired to send every item cold and warm."


def dots_by_kind(pairs: Sequence[Pair], x: dict[str, float], y: dict[str, float]) -> list[Dots]:
    """One layer per kind, confirmed reuse drawn last. ``x`` and ``y`` map item ids to coordinates."""
    layers = []
    for kind, (tone, mark) in MARKS.items():
        chosen = [pair for pair in pairs if pair.kind == kind and pair.row.item_id in x and pair.row.item_id in y]
        dots = tuple(Dot(x[p.row.item_id], y[p.row.item_id], _label(p)) for p in chosen)
        if dots:
            layers.append(Dots(KIND_NAMES[kind], tone, dots, mark))
    return layers


def _label(pair: Pair) -> str:
    return f"{pair.label}: {milliseconds(pair.cold_ms)} cold, {milliseconds(pair.warm_ms)} warm, {ratio(pair.speedup)}"


def scatter(pairs: PairSet) -> Chart:
    clean = pairs.clean
    x = log_axis("cold TTFT (log)", [pair.cold_ms for pair in clean], tick_ms)
    y = log_axis("warm TTFT (log)", [pair.warm_ms for pair in clean], tick_ms)
    equal = (max(x.low, y.low), min(x.high, y.high))
    shows_equal = equal[0] < equal[1]
    cold = {pair.row.item_id: pair.cold_ms for pair in clean}
    warm = {pair.row.item_id: pair.warm_ms for pair in clean}
    faster = sum(pair.warm_ms < pair.cold_ms for pair in clean)
    rows = tuple((KIND_NAMES[kind], *_quartiles(pairs.of(kind))) for kind in MARKS if pairs.of(kind))
    return Chart(
        "ttft-pairs",
        "Each pair: cold against warm",
        f"{faster:,} of {plural(len(clean), 'clean pair')} were faster warm."
        + " Points below the line are faster." * shows_equal,
        x,
        y,
        (
            *([Curve("", "muted", tuple((end, end) for end in equal), dashed=True)] if shows_equal else []),
            *dots_by_kind(clean, cold, warm),
        ),
        DataTable(("pairs", "n", "cold median", "warm median", "speedup median [95 %]"), rows),
    )


def _quartiles(pairs: Sequence[Pair]) -> tuple[str, ...]:
    cold, warm = (median_estimate([getattr(pair, name) for pair in pairs]) for name in ("cold_ms", "warm_ms"))
    speed = median_estimate([pair.speedup for pair in pairs])
    return (count(len(pairs)), _value(cold), _value(warm), NOT_MEASURED if speed is None else speed.shown(ratio))


def _value(estimate: Estimate | None) -> str:
    return NOT_MEASURED if estimate is None else milliseconds(estimate.value)


def cumulative(pairs: PairSet) -> Chart:
    """Blended: misses included, negative controls excluded (unless there are no other pairs)."""
    chosen = pairs.blended or pairs.clean
    arms: tuple[tuple[str, Tone, list[float]], ...] = (
        ("cold", "cold", sorted(pair.cold_ms for pair in chosen)),
        ("warm (misses included)", "reuse", sorted(pair.warm_ms for pair in chosen)),
    )
    axis = log_axis("TTFT (log)", [*arms[0][2], *arms[1][2]], tick_ms)
    medians = [float(np.median(values)) for _, _, values in arms]
    rows = tuple((name, *(milliseconds(float(np.percentile(v, p))) for p in _PERCENTS)) for name, _, v in arms)
    return Chart(
        "ttft-cumulative",
        "Fraction of requests answered within a time",
        f"Median {milliseconds(medians[0])} cold, {milliseconds(medians[1])} warm, over {plural(len(chosen), 'pair')}.",
        axis,
        linear_axis("requests that have their first token", 0.0, 1.0, tick_share, 4),
        tuple(Curve(name, tone, _steps(values, axis.low, axis.high)) for name, tone, values in arms),
        DataTable(("arm", *(f"p{p}" for p in _PERCENTS)), rows),
        "Negative controls are excluded from these curves." if pairs.of("negative") and pairs.blended else "",
    )


def _steps(values: Sequence[float], low: float, high: float) -> tuple[tuple[float, float], ...]:
    """The empirical distribution: a step up at each value."""
    points = [(low, 0.0)]
    for rank, value in enumerate(values, start=1):
        points += [(value, (rank - 1) / len(values)), (value, rank / len(values))]
    return (*points, (high, 1.0))


def _transforms(pairs: PairSet) -> DataTable:
    rows = []
    for name, group in by_transform(pairs.clean).items():
        reused = [pair.speedup for pair in group if pair.kind == "reuse"]
        only = median_estimate(reused)
        whole = median_estimate([pair.speedup for pair in group])
        shown = NOT_MEASURED if whole is None else whole.shown(ratio)
        rows.append((name, count(len(group)), shown, count(len(reused)), "none" if only is None else ratio(only.value)))
    return DataTable(("transform", "pairs", "all pairs [95 %]", "reused", "reused only"), tuple(rows))


def _noise(subject: Subject) -> str:
    high = subject.noise_floor.ttft_ratio_high
    floor = NOT_MEASURED if high is None else f"two cold runs differ by up to {ratio(high)}"
    return f"Medians. Noise floor of TTFT: {floor}."


def strips(subject: Subject) -> Chart:
    groups = by_transform(subject.pairs.clean)
    names = sorted(groups, key=lambda name: -float(np.median([pair.speedup for pair in groups[name]])))
    place = {name: float(i) for i, name in enumerate(names)}
    clean = subject.pairs.clean
    medians = {name: median_estimate([pair.speedup for pair in groups[name]]) for name in names}
    whiskers = tuple(
        Whisker(e.value, place[name], e.low, e.high, f"{name}: median {e.shown(ratio)}, n = {e.n}")
        for name, e in medians.items()
        if e is not None
    )
    rows = tuple((name, count(e.n), e.shown(ratio)) for name, e in medians.items() if e is not None)
    whole, only = blended(subject), reused_only(subject)
    message = f"Blended median {whole.shown(ratio)}, n = {whole.n:,}" if whole else "Only negative controls"
    message += f"; reused only {only.shown(ratio)}, n = {only.n:,}." if only else "; no pair has confirmed reuse."
    return Chart(
        "speedup-by-transform",
        "Speedup by transform",
        message,
        log_axis("cold TTFT / warm TTFT (log)", [1.0, *(pair.speedup for pair in clean)], tick_ratio),
        category_axis(names),
        (
            Rule(1.0, "equal", vertical=True),
            *dots_by_kind(
                clean,
                {pair.row.item_id: pair.speedup for pair in clean},
                {pair.row.item_id: place[pair.row.transform] for pair in clean},
            ),
            Whiskers("median, 95 % interval", "ink", whiskers, horizontal=True),
        ),
        DataTable(("transform", "pairs", "median [95 %]"), rows),
    )
