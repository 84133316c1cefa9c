"""Section: the estimate of ``kvmend bench roi``: saving by reuse rate with the break-even, and by prompt length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sembase.errors import ContractError
from sembase.onepage.chart import Chart, Curve, DataTable, Rule, Whisker, Whiskers
from sembase.onepage.formats import NOT_MEASURED, tick_ms
from sembase.onepage.markup import tag
from sembase.onepage.section import Section, card, columns, figure, table
from sembase.onepage.ticks import category_axis, linear_axis
from sembench.report.formats import milliseconds, percent, tick_share
from sembench.report.lengths import tokens

_VERSION: Final = "sembench.roi.v1"


def section(record: Mapping[str, Any]) -> Section:
    if record.get("roi_version") != _VERSION:
        raise ContractError(f"--roi: not an estimate of kvmend bench roi ({_VERSION})")
    try:
        return _section(record)
    except (KeyError, TypeError, AttributeError) as error:
        raise ContractError(f"--roi: incomplete estimate of kvmend bench roi: {error!r}") from None


def _section(record: Mapping[str, Any]) -> Section:
    charts = (_curve(record), _by_length(record))
    notes = tag("ul", *(tag("li", str(note)) for note in record["notes"]), class_="notes")
    lead = (
        f"Expected saving {_band(record['saving_ms'], milliseconds)} of TTFT per request, "
        f"{_band(record['saving_share'], percent)} of the cold time. Probability of any saving: "
        f"{percent(record['probability_of_saving'])}. This is an estimate from measured costs, not a measurement."
    )
    cards = (
        *(figure(chart, "") for chart in charts),
        card("By length", table(charts[1].table)),
        card("Assumptions", notes),
    )
    return Section("saving", "Expected saving", lead, (columns(*cards),), charts)


def _band(band: Mapping[str, float], form: Any) -> str:
    return f"{form(band['value'])} [{form(band['low'])}, {form(band['high'])}]"


def _curve(record: Mapping[str, Any]) -> Chart:
    points = record["curve"]
    ends = [value for point in points for value in (point["low"], point["high"], 0.0)]
    rate, needed = record["reuse_rate"], record["break_even_rate"]
    rules = [Rule(0.0, ""), Rule(rate["value"], f"rate {percent(rate['value'])}", vertical=True, tone="accent")]
    if needed is not None and abs(needed["value"] - rate["value"]) > 0.12:
        rules.append(
            Rule(needed["value"], f"break-even {percent(needed['value'])}", vertical=True, tone="bad", dashed=True)
        )
    break_even = "never: reuse is not faster" if needed is None else _band(needed, percent)
    rows = tuple((percent(p["reuse_rate"]), _band(p, milliseconds)) for p in points)
    return Chart(
        "saving-by-rate",
        "Saving against the reuse rate",
        f"Break-even reuse rate: {break_even}.",
        linear_axis("reuse rate", 0.0, 1.0, tick_share, 4),
        linear_axis("saved per request", min(ends), max(ends), tick_ms, 5),
        (
            *rules,
            Curve("expected", "reuse", tuple((p["reuse_rate"], p["value"]) for p in points)),
            *(
                Curve("95 % interval" if end == "low" else "", "reuse", _line(points, end), dashed=True)
                for end in ("low", "high")
            ),
        ),
        DataTable(("reuse rate", "saved per request [95 %]"), rows),
    )


def _line(points: list[Mapping[str, float]], end: str) -> tuple[tuple[float, float], ...]:
    return tuple((point["reuse_rate"], point[end]) for point in points)


def _by_length(record: Mapping[str, Any]) -> Chart:
    buckets = record["buckets"]
    names = [f"{tokens(b['low'])} to {tokens(b['high'])}{' *' if b['extrapolated'] else ''}" for b in buckets]
    ends = [value for b in buckets for value in (b["saving_ms"]["low"], b["saving_ms"]["high"], 0.0)]
    whiskers = tuple(
        Whisker(
            b["saving_ms"]["value"],
            float(i),
            b["saving_ms"]["low"],
            b["saving_ms"]["high"],
            f"{names[i]}: {_band(b['saving_ms'], milliseconds)}",
        )
        for i, b in enumerate(buckets)
    )
    rows = tuple(
        (
            name,
            f"{b['requests']:,.0f}",
            milliseconds(b["cold_ms"]["value"]),
            milliseconds(b["warm_ms"]["value"]),
            NOT_MEASURED if b["miss_ms"] is None else milliseconds(b["miss_ms"]["value"]),
            NOT_MEASURED if b["capture_ms"] is None else milliseconds(b["capture_ms"]["value"]),
            milliseconds(b["saving_ms"]["value"]),
        )
        for name, b in zip(names, buckets, strict=True)
    )
    return Chart(
        "saving-by-length",
        "Saving by prompt length",
        f"At a reuse rate of {percent(record['reuse_rate']['value'])}, including the cost of misses and captures.",
        linear_axis("saved per request", min(ends), max(ends), tick_ms, 5),
        category_axis([f"{name} tokens" for name in names]),
        (Rule(0.0, "", vertical=True), Whiskers("", "reuse", whiskers, horizontal=True)),
        DataTable(("tokens", "requests", "cold", "warm", "miss", "capture", "saving"), rows),
        "* extrapolated: some of these lengths were not measured." if any(b["extrapolated"] for b in buckets) else "",
    )
