"""Section: the cost of a miss, and the cost of a reuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sembase.onepage.chart import Chart, DataTable, Dot, Dots, Rule, Whisker, Whiskers
from sembase.onepage.formats import NOT_MEASURED, count
from sembase.onepage.markup import Safe
from sembase.onepage.section import Section, card, columns, figure, missing, table
from sembase.onepage.ticks import category_axis, log_axis
from sembench.metrics.rows import BackendRow
from sembench.report.estimates import median_estimate
from sembench.report.formats import milliseconds, ratio, tick_ratio
from sembench.report.pairs import Pair
from sembench.report.subject import Subject


def section(subject: Subject) -> Section:
    chart = _chart(subject.pairs.of("miss", "negative"))
    lead = "Warm TTFT divided by cold TTFT for requests without reuse. Above 1, the look-up or bookkeeping cost time."
    drawn = (
        figure(chart, subject.prefix)
        if chart
        else missing("Cost of a miss", "No clean pair for which the engine reported that nothing was reused.")
    )
    charts = (chart,) if chart else ()
    return Section("costs", "Costs of misses", lead, (columns(drawn, _parts(subject)),), charts)


def _reason(pair: Pair) -> str:
    if pair.row.backend is None:
        return "no engine report (negative control)"
    return pair.row.backend.decline_reason or pair.row.backend.outcome


def _chart(pairs: Sequence[Pair]) -> Chart | None:
    if not pairs:
        return None
    groups: dict[str, list[Pair]] = {"all misses": list(pairs)}
    for pair in pairs:
        groups.setdefault(_reason(pair), []).append(pair)
    if len(groups) == 2:
        del groups["all misses"]
    names = list(groups)[:1] + sorted(list(groups)[1:], key=lambda name: -len(groups[name]))
    shares = {name: [pair.warm_ms / pair.cold_ms for pair in groups[name]] for name in names}
    medians = {name: median_estimate(values) for name, values in shares.items()}
    whiskers = tuple(
        Whisker(e.value, float(i), e.low, e.high, f"{name}: {e.shown(ratio)}, n = {e.n}")
        for i, (name, e) in enumerate(medians.items())
        if e is not None
    )
    dots = tuple(
        Dot(pair.warm_ms / pair.cold_ms, float(i), f"{pair.label}: {milliseconds(pair.warm_ms - pair.cold_ms)} slower")
        for i, name in enumerate(names)
        for pair in groups[name]
    )
    whole = median_estimate([pair.warm_ms / pair.cold_ms for pair in pairs])
    extra = median_estimate([pair.warm_ms - pair.cold_ms for pair in pairs])
    return Chart(
        "miss-cost",
        "Cost of a miss",
        f"Median {whole.shown(ratio) if whole else ''} of the cold time, n = {len(pairs):,}.",
        log_axis("warm TTFT / cold TTFT (log)", [0.9, 1.1, *(dot.x for dot in dots)], tick_ratio),
        category_axis(names),
        (
            Rule(1.0, "equal", vertical=True),
            Dots("a miss", "miss", dots, "ring"),
            Whiskers("median, 95 % interval", "ink", whiskers, horizontal=True),
        ),
        DataTable(
            ("reason", "pairs", "warm / cold [95 %]"),
            tuple((name, count(e.n), e.shown(ratio)) for name, e in medians.items() if e is not None),
        ),
        f"Median extra time per miss: {milliseconds(extra.value)} (negative means faster)." if extra else "",
    )


def _parts(subject: Subject) -> Safe:
    backends = [row.backend for row in subject.rows if row.backend is not None and row.backend.reused_tokens]
    plans = [row.plan.plan_ms for row in subject.rows if row.plan is not None]
    rows = (
        _times("look-up by the offline planner", plans),
        _times("loading donor KV (engine)", _of(backends, lambda backend: backend.load_ms)),
        _times("computing the rest of the prompt (engine)", _of(backends, lambda backend: backend.compute_ms)),
    )
    faults = [row.backend.faults for row in subject.rows if row.backend is not None and row.backend.faults is not None]
    reported = f"{sum(faults):,} in {len(faults):,} reported requests" if faults else NOT_MEASURED
    return card(
        "Where the time of a reuse goes",
        table(DataTable(("step", "n", "median", "p99"), rows)),
        f"Faults the engine reported: {reported}.",
    )


def _of(backends: Sequence[BackendRow], read: Callable[[BackendRow], float | None]) -> list[float]:
    return [value for backend in backends if (value := read(backend)) is not None]


def _times(name: str, values: Sequence[float]) -> tuple[str, ...]:
    if not values:
        return name, "0", NOT_MEASURED, NOT_MEASURED
    ordered = sorted(values)
    middle = median_estimate(ordered)
    late = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return name, count(len(ordered)), milliseconds(middle.value if middle else None), milliseconds(late)
