"""Section: speedup against context length in power-of-two buckets, blended and reused-only side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sembase.onepage.chart import Chart, DataTable, Rule, Whisker, Whiskers
from sembase.onepage.formats import NOT_MEASURED, TO
from sembase.onepage.section import Section, columns, figure, missing, table
from sembase.onepage.section import card as text_card
from sembase.onepage.ticks import doubling_axis, log_axis
from sembench.report.estimates import Estimate, median_estimate
from sembench.report.formats import milliseconds, ratio, tick_ratio
from sembench.report.latency import dots_by_kind
from sembench.report.pairs import Pair
from sembench.report.subject import Subject


@dataclass(frozen=True, slots=True)
class LengthBucket:
    """Pairs whose prompts have at least ``low`` and fewer than twice as many tokens."""

    low: int
    pairs: tuple[Pair, ...]

    @property
    def name(self) -> str:
        return f"{tokens(self.low)}{TO}{tokens(2 * self.low)}"

    @property
    def middle(self) -> float:
        return math.exp(sum(math.log(pair.row.prompt_tokens) for pair in self.pairs) / len(self.pairs))

    def speedup(self, *, reused_only: bool) -> Estimate | None:
        return median_estimate([pair.speedup for pair in self.pairs if not reused_only or pair.kind == "reuse"])


def tokens(value: float) -> str:
    """1,024 tokens are written as 1K."""
    return f"{value / 1024:.3g}K" if value >= 1024 else f"{value:.0f}"


def buckets_of(pairs: Sequence[Pair]) -> list[LengthBucket]:
    groups: dict[int, list[Pair]] = {}
    for pair in pairs:
        if pair.row.prompt_tokens > 0:
            groups.setdefault(2 ** int(math.log2(pair.row.prompt_tokens)), []).append(pair)
    return [LengthBucket(low, tuple(groups[low])) for low in sorted(groups)]


def section(subject: Subject) -> Section:
    buckets = buckets_of(subject.pairs.blended)
    title = "Speedup against context length"
    if not buckets:
        why = "There are no clean pairs except negative controls."
        return Section("length", title, "", (missing(title, why),))
    chart = _chart(subject.pairs.blended, buckets)
    lead = "Prefill time grows with the prompt, and so does the possible saving. Too few items give no interval."
    figures = text_card("By length", table(_compact(buckets)))
    return Section("length", title, lead, (columns(figure(chart, subject.prefix), figures),), (chart,))


def _chart(pairs: Sequence[Pair], buckets: Sequence[LengthBucket]) -> Chart:
    x = {pair.row.item_id: float(pair.row.prompt_tokens) for pair in pairs}
    y = {pair.row.item_id: pair.speedup for pair in pairs}
    rows = tuple(_table_row(bucket) for bucket in buckets)
    return Chart(
        "speedup-by-length",
        "Speedup against context length",
        _message(buckets),
        doubling_axis("prompt tokens (log)", list(x.values()), tokens),
        log_axis("cold TTFT / warm TTFT (log)", [1.0, *y.values()], tick_ratio),
        (
            Rule(1.0, "equal"),
            *dots_by_kind(pairs, x, y),
            _medians("blended median, 95 %", buckets, 1.0, reused_only=False),
            *([reused] if (reused := _medians("", buckets, 1.06, reused_only=True)).whiskers else []),
        ),
        DataTable(("prompt tokens", "pairs", "cold", "warm", "blended [95 %]", "reused", "reused only [95 %]"), rows),
    )


def _medians(name: str, buckets: Sequence[LengthBucket], shift: float, *, reused_only: bool) -> Whiskers:
    """``shift`` moves the second series sideways, so that it does not cover the first."""
    whiskers = tuple(
        Whisker(bucket.middle * shift, e.value, e.low, e.high, f"{bucket.name} tokens: {e.shown(ratio)}, n = {e.n}")
        for bucket in buckets
        if (e := bucket.speedup(reused_only=reused_only)) is not None
    )
    return Whiskers("reused-only median, 95 %" if reused_only else name, "reuse" if reused_only else "ink", whiskers)


def _message(buckets: Sequence[LengthBucket]) -> str:
    first, last = (bucket.speedup(reused_only=False) for bucket in (buckets[0], buckets[-1]))
    if first is None or last is None or len(buckets) == 1:
        only = first or last
        return f"One length only: {buckets[0].name} tokens, blended {ratio(only.value if only else None)}."
    return (
        f"Blended median {ratio(first.value)} at {buckets[0].name} tokens (n = {first.n:,}), "
        f"{ratio(last.value)} at {buckets[-1].name} (n = {last.n:,})."
    )


def _compact(buckets: Sequence[LengthBucket]) -> DataTable:
    """Medians; the table under the chart has every interval."""
    rows = []
    for bucket in buckets:
        *most, reused, alone = _table_row(bucket)
        rows.append((*most, f"{alone.split(' [')[0]} ({reused})"))
    return DataTable(("tokens", "pairs", "cold", "warm", "blended [95 %]", "reused only (n)"), tuple(rows))


def _table_row(bucket: LengthBucket) -> tuple[str, ...]:
    cold = median_estimate([pair.cold_ms for pair in bucket.pairs])
    warm = median_estimate([pair.warm_ms for pair in bucket.pairs])
    whole, only = bucket.speedup(reused_only=False), bucket.speedup(reused_only=True)
    return (
        bucket.name,
        f"{len(bucket.pairs):,}",
        milliseconds(cold.value if cold else None),
        milliseconds(warm.value if warm else None),
        NOT_MEASURED if whole is None else whole.shown(ratio),
        "0" if only is None else f"{only.n:,}",
        "none" if only is None else only.shown(ratio),
    )
