"""Section: a result of ``run-load``: latencies with intervals, throughput, goodput, the client's own overhead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sembase.errors import ContractError
from sembase.onepage.chart import Chart, DataTable, Whisker, Whiskers
from sembase.onepage.formats import NOT_MEASURED, plural, tick_ms
from sembase.onepage.markup import Safe
from sembase.onepage.section import Section, card, columns, figure, missing, table
from sembase.onepage.ticks import category_axis, log_axis
from sembench.console.table import NOT_MEASURED as DASH
from sembench.console.table import Table
from sembench.load.result import LOAD_VERSION
from sembench.load.summary import PERCENTS, value_of
from sembench.load.tables import tables
from sembench.report.formats import milliseconds
from sembench.report.tones import Tone

_SERIES: Final[tuple[tuple[str, str, Tone], ...]] = (
    ("TTFT", "ttft", "reuse"),
    ("time per output token", "tpot", "miss"),
    ("complete answer", "e2e", "ink"),
)


def section(result: Mapping[str, Any] | None) -> Section:
    title = "Under load"
    if result is None:
        why = "No load result was given (--load). The times above were measured at the concurrency of the runs."
        return Section("load", title, "", (missing("Throughput and latency under load", why),))
    if result.get("result_version") != LOAD_VERSION:
        raise ContractError(f"--load: not a result of run-load ({LOAD_VERSION})")
    try:
        return _section(title, result)
    except (KeyError, TypeError, AttributeError) as error:
        raise ContractError(f"--load: incomplete result of run-load: {error!r}") from None


def _section(title: str, result: Mapping[str, Any]) -> Section:
    chart = _chart(result)
    latencies, *others = tables(result)
    cards = [figure(chart, "")] if chart else [missing("Latency under load", "No request succeeded.")]
    cards += [_card(each) for each in others]
    requests = result["requests"]
    lead = f"{plural(requests['sent'], 'request')} sent, {requests['ok']:,} succeeded. Evidence: measured live."
    return Section("load", title, lead, (columns(*cards), _card(latencies)), (chart,) if chart else ())


def _card(shown: Table) -> Safe:
    rows = tuple(tuple(NOT_MEASURED if cell == DASH else cell for cell in row) for row in shown.rows)
    return card(shown.title, table(DataTable(shown.columns, rows)), *shown.notes)


def _chart(result: Mapping[str, Any]) -> Chart | None:
    """Percentiles of each latency. An interval end that is unknown (too few requests) is drawn at the percentile."""
    measured = [(name, tone, result["latency_ms"][key]) for name, key, tone in _SERIES if result["latency_ms"].get(key)]
    layers = [_whiskers(name, tone, summary) for name, tone, summary in measured]
    values = [end for layer in layers for w in layer.whiskers for end in (w.x, w.low, w.high) if end]
    if not values:
        return None
    rows = tuple((w.label.split(":")[0], w.label.split(": ")[1]) for layer in layers for w in layer.whiskers)
    name, _, first = measured[0]
    return Chart(
        "load-latency",
        "Latency under load",
        f"{name} p50 {milliseconds(value_of(first, 50))}, p99 {milliseconds(value_of(first, 99))}, n = {first['n']:,}.",
        log_axis("ms (log)", values, tick_ms),
        category_axis([f"p{percent}" for percent in PERCENTS]),
        tuple(layers),
        DataTable(("latency", "value [95 %]"), rows),
    )


def _whiskers(name: str, tone: Tone, summary: Mapping[str, Any]) -> Whiskers:
    whiskers = []
    for place, percent in enumerate(PERCENTS):
        found = summary[f"p{percent}"]
        low, high = (found["value"] if end is None else end for end in found["ci95"])
        shown = " to ".join(milliseconds(end) if end is not None else "?" for end in found["ci95"])
        label = f"{name} p{percent}: {milliseconds(found['value'])} [{shown}]"
        whiskers.append(Whisker(found["value"], float(place), low, high, label))
    return Whiskers(name, tone, tuple(whiskers), horizontal=True)
