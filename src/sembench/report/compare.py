"""Section of ``--compare A B``: differences with intervals, times per item, and the items that flipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sembase.onepage.chart import Chart, Curve, DataTable, Dot, Dots, Mark, Rule, Whisker, Whiskers
from sembase.onepage.formats import NOT_MEASURED, plural, tick_ms
from sembase.onepage.markup import Safe, tag
from sembase.onepage.section import Section, card, columns, figure, missing, table
from sembase.onepage.ticks import category_axis, linear_axis, log_axis
from sembench.metrics.rows import is_reused, timed
from sembench.report.differences import (
    RATES,
    Flip,
    RateDifference,
    Twins,
    flips_of,
    rate_difference,
    speedup_difference,
    time_ratios,
    twins_of,
)
from sembench.report.estimates import Estimate, median_estimate
from sembench.report.formats import milliseconds, percent, points, ratio, shortened
from sembench.report.subject import Subject
from sembench.report.tones import Tone

_MAX_FLIPS: Final = 40
_REUSED: Final[dict[tuple[bool, bool], tuple[str, Tone, Mark]]] = {
    (False, False): ("reused in neither", "miss", "ring"),
    (True, False): ("reused in A only", "cold", "disc"),
    (False, True): ("reused in B only", "negative", "diamond"),
    (True, True): ("reused in both", "reuse", "disc"),
}


def section(a: Subject, b: Subject) -> Section:
    twins = twins_of(a.rows, b.rows)
    rates = [rate_difference(rate, twins) for rate in RATES]
    charts = [chart for chart in (_forest(rates), _times(twins)) if chart is not None]
    cards: list[Safe] = [figure(chart, "") for chart in charts]
    if not any(chart.key == "compare-ttft" for chart in charts):
        cards.append(missing("Warm TTFT, A against B", "No item has a warm time in both results."))
    flips = flips_of(twins)
    lead = f"A is {a.name}, B is {b.name}. {_shared(a, b, twins)} Differences are B minus A over the shared items."
    body = (*_warning(a, b), columns(*cards), columns(_speeds(twins), _rates(rates)), _flips(flips, twins))
    return Section("compare", "What changed from A to B", lead, body, tuple(charts))


def _shared(a: Subject, b: Subject, twins: Twins) -> str:
    only = f"{len(a.rows) - len(twins):,} only in A, {len(b.rows) - len(twins):,} only in B"
    return f"{plural(len(twins), 'item')} in both, {only}."


def _warning(a: Subject, b: Subject) -> tuple[Safe, ...]:
    """Equal ids do not imply equal prompts; equal digests do."""
    warnings = []
    if a.result["run"].get("manifest_digest") != b.result["run"].get("manifest_digest"):
        warnings.append("The manifest digests differ, so items with the same id may have different prompts.")
    for what in ("engine", "config"):
        if a.result[what] != b.result[what]:
            warnings.append(f"The runs differ in their {what}: see the provenance of both.")
    return (tag("div", *(tag("p", line) for line in warnings), class_="ruling warn"),) if warnings else ()


def _forest(rates: Sequence[RateDifference]) -> Chart | None:
    known = [(rate, rate.difference) for rate in rates if rate.difference is not None]
    if not known:
        return None
    ends = [end for _, e in known for end in (e.value, e.low, e.high) if end is not None]
    reach = max(0.01, *(abs(end) for end in ends))
    whiskers = tuple(
        Whisker(e.value, float(i), e.low, e.high, f"{rate.title}: {_difference(e)}, n = {e.n}")
        for i, (rate, e) in enumerate(known)
    )
    clear = sum(e.low is not None and e.high is not None and (e.low > 0 or e.high < 0) for _, e in known)
    return Chart(
        "compare-rates",
        "Rates: B minus A",
        f"{clear:,} of {plural(len(known), 'rate')} differ by more than chance (the interval excludes 0).",
        linear_axis(
            "percentage points", -reach, reach, lambda v: points(v).removesuffix(" pp").replace("+0.0", "0"), 4
        ),
        category_axis([rate.title for rate, _ in known]),
        (Rule(0.0, "no change", vertical=True), Whiskers("", "ink", whiskers, horizontal=True)),
        DataTable(
            ("rate", "B minus A [95 %]", "items"), tuple((r.title, _difference(e), f"{e.n:,}") for r, e in known)
        ),
    )


def _difference(estimate: Estimate | None) -> str:
    if estimate is None:
        return NOT_MEASURED
    return estimate.shown(points).replace(" pp,", ",").replace(" pp]", "]")


def _times(twins: Twins) -> Chart | None:
    timed_twins = [
        (a, b, a_ms, b_ms)
        for a, b in twins
        if (a_ms := timed(a.warm)) is not None and (b_ms := timed(b.warm)) is not None
    ]
    if not timed_twins:
        return None
    x = log_axis("warm TTFT of A (log)", [each[2] for each in timed_twins], tick_ms)
    y = log_axis("warm TTFT of B (log)", [each[3] for each in timed_twins], tick_ms)
    layers = []
    for kind, (name, tone, mark) in _REUSED.items():
        dots = tuple(
            Dot(a_ms, b_ms, f"{a.item_id} · {a.transform}: {milliseconds(a_ms)} in A, {milliseconds(b_ms)} in B")
            for a, b, a_ms, b_ms in timed_twins
            if (bool(is_reused(a)), bool(is_reused(b))) == kind
        )
        if dots:
            layers.append(Dots(name, tone, dots, mark))
    faster = sum(b_ms < a_ms for _, _, a_ms, b_ms in timed_twins)
    equal = (max(x.low, y.low), min(x.high, y.high))
    line = [Curve("", "muted", tuple((end, end) for end in equal), dashed=True)] if equal[0] < equal[1] else []
    middle = median_estimate([a_ms / b_ms for _, _, a_ms, b_ms in timed_twins])
    rows = tuple((layer.name, f"{len(layer.dots):,}") for layer in layers)
    return Chart(
        "compare-ttft",
        "Warm TTFT, A against B",
        f"B was faster on {faster:,} of {plural(len(timed_twins), 'item')}; median A / B "
        f"{middle.shown(ratio) if middle else NOT_MEASURED}. Below the line B is faster.",
        x,
        y,
        (*line, *layers),
        DataTable(("items", "n"), rows),
    )


def _speeds(twins: Twins) -> Safe:
    a, b, gap = speedup_difference(twins)
    rows = [("blended speedup, pairs clean in both", _shown(a), _shown(b), _gap(gap))]
    for arm in ("warm", "cold"):
        e = median_estimate(time_ratios(twins, "warm" if arm == "warm" else "cold"))
        rows.append((f"{arm} TTFT, A over B", "", "", NOT_MEASURED if e is None else f"{e.shown(ratio)}, n = {e.n:,}"))
    note = "Cold times should be equal. If they are not, the machines differed and warm times are not comparable."
    return card("Times", table(DataTable(("median", "A", "B", "B against A [95 %]"), tuple(rows))), note)


def _shown(estimate: Estimate | None) -> str:
    return NOT_MEASURED if estimate is None else ratio(estimate.value)


def _gap(gap: Estimate | None) -> str:
    if gap is None:
        return NOT_MEASURED
    return f"{gap.shown(lambda value: f'{value:+.2f}')}, n = {gap.n:,}".replace("-", "\N{MINUS SIGN}")


def _rates(rates: Sequence[RateDifference]) -> Safe:
    rows = tuple((rate.title, percent(rate.a), percent(rate.b), _difference(rate.difference)) for rate in rates)
    return card("Rates over the shared items", table(DataTable(("rate", "A", "B", "B minus A [95 %]"), rows)))


def _flips(flips: Sequence[Flip], twins: Twins) -> Safe:
    judged = sum(a.quality_pass is not None and b.quality_pass is not None for a, b in twins)
    reported = sum(is_reused(a) is not None and is_reused(b) is not None for a, b in twins)
    counts = f"Quality: {_count(flips, 'quality')} of {judged:,}; reuse: {_count(flips, 'reuse')} of {reported:,}"
    if not judged and not reported:
        return missing("Items that flipped", "Neither quality nor reuse is known in both results.")
    if not flips:
        return card("Items that flipped", f"None ({counts}).")
    rows = tuple(_flip(flip) for flip in sorted(flips, key=lambda flip: (flip.gained, flip.kind))[:_MAX_FLIPS])
    more = f" The first {_MAX_FLIPS} are shown, losses first." if len(flips) > _MAX_FLIPS else ""
    shown = DataTable(("item", "transform", "what flipped", "A", "B", "answer of A", "answer of B"), rows)
    return card("Items that flipped", f"{counts}.{more}", table(shown, text_columns=range(7), kind="texts"))


def _count(flips: Sequence[Flip], kind: str) -> str:
    gained, lost = (sum(f.kind == kind and f.gained is wanted for f in flips) for wanted in (True, False))
    return f"{gained:,} gained and {lost:,} lost"


def _flip(flip: Flip) -> tuple[str, ...]:
    words = ("passed", "failed") if flip.kind == "quality" else ("reused", _reason(flip))
    before, after = (words[1], words[0]) if flip.gained else words
    texts = [row.warm.text if row.warm is not None else None for row in (flip.a, flip.b)]
    shown = [NOT_MEASURED if text is None else shortened(text, 120) for text in texts]
    return flip.a.item_id, flip.a.transform, flip.kind, before, after, *shown


def _reason(flip: Flip) -> str:
    """The decline reason of the result without reuse."""
    row = flip.a if flip.gained else flip.b
    return (row.backend.decline_reason if row.backend else None) or "not reused"
