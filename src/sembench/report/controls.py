"""Section: negative controls and every other figure that must be zero, with its denominator."""

from __future__ import annotations

from sembase.onepage.chart import Chart, DataTable, Rule, Whisker, Whiskers
from sembase.onepage.formats import NOT_MEASURED, count, fraction, plural
from sembase.onepage.markup import Safe, tag
from sembase.onepage.section import Section, chip, columns, figure, missing
from sembase.onepage.ticks import category_axis, log_axis
from sembench.must_be_zero import MUST_BE_ZERO
from sembench.report.estimates import median_estimate
from sembench.report.formats import percent, ratio, tick_ratio
from sembench.report.headline import negatives
from sembench.report.latency import dots_by_kind
from sembench.report.pairs import by_transform
from sembench.report.subject import Subject


def section(subject: Subject) -> Section:
    controls = sum(row.negative_control for row in subject.rows)
    chart = _chart(subject)
    speed = negatives(subject)
    lead = f"{plural(controls, 'negative control')}: requests for which no donor KV may be reused. "
    lead += (
        f"Their median speedup is {speed.shown(ratio)} over {plural(speed.n, 'clean pair')}; it should be 1."
        if speed
        else f"Their speedup: {NOT_MEASURED}."
    )
    drawn = (
        figure(chart, subject.prefix)
        if chart
        else missing("Negative controls stay cold", "No clean pairs of negative controls.")
    )
    charts = (chart,) if chart else ()
    return Section("controls", "Negative controls", lead, (columns(drawn, zeros(subject)),), charts)


def zeros(subject: Subject) -> Safe:
    """Recomputed from the rows, not read from the aggregate."""
    rows = []
    for check in MUST_BE_ZERO:
        found = check.measure(subject.rows)
        if found is None:
            rows.append((check.title, chip("not measured", "none"), NOT_MEASURED))
            continue
        value = percent(found.value) if check.is_rate else count(found.value)
        state = chip("0", "good") if found.value == 0 else chip(value, "bad")
        rows.append((check.title, state, fraction(found.numerator, found.denominator)))
    body = [
        tag("tr", tag("td", title), tag("td", state, class_="n"), tag("td", parts, class_="n"))
        for title, state, parts in rows
    ]
    head = tag("tr", tag("th", "check"), tag("th", "found", class_="n"), tag("th", "of", class_="n"))
    return tag(
        "div",
        tag("h3", "Figures that must be zero"),
        tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll"),
        class_="card",
    )


def _chart(subject: Subject) -> Chart | None:
    pairs = subject.pairs.of("negative")
    if not pairs:
        return None
    groups = by_transform(pairs)
    place = {name: float(i) for i, name in enumerate(groups)}
    medians = {name: median_estimate([pair.speedup for pair in group]) for name, group in groups.items()}
    whiskers = tuple(
        Whisker(e.value, place[name], e.low, e.high, f"{name}: {e.shown(ratio)}, n = {e.n}")
        for name, e in medians.items()
        if e is not None
    )
    spread = [pair.speedup for pair in pairs]
    return Chart(
        "negative-controls",
        "Negative controls stay cold",
        f"Per-pair speedups from {ratio(min(spread))} to {ratio(max(spread))}; there was nothing to reuse.",
        log_axis("cold TTFT / warm TTFT (log)", [0.9, 1.0, 1.1, *spread], tick_ratio),
        category_axis(list(groups)),
        (
            Rule(1.0, "equal", vertical=True),
            *dots_by_kind(
                pairs,
                {pair.row.item_id: pair.speedup for pair in pairs},
                {pair.row.item_id: place[pair.row.transform] for pair in pairs},
            ),
            Whiskers("median, 95 % interval", "ink", whiskers, horizontal=True),
        ),
        DataTable(
            ("transform", "pairs", "median [95 %]"),
            tuple((name, count(e.n), e.shown(ratio)) for name, e in medians.items() if e is not None),
        ),
    )
