"""Two scrapes of a server in, the changes between them out: counters and histograms as differences, gauges as pairs.

A counter that went down was reset, and so was every series of a restarted process: such differences are None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.registry import load_target

Labels = tuple[tuple[str, str], ...]
_STARTED: Final = "process_start_time_seconds"
_CREATED: Final = "_created"


@dataclass(frozen=True, slots=True)
class Scrape:
    """Values by sample name and labels. ``kinds`` is by sample name: counter, gauge, histogram, ..."""

    values: Mapping[tuple[str, Labels], float]
    kinds: Mapping[str, str]

    def started(self) -> dict[Labels, float]:
        return {labels: value for (name, labels), value in self.values.items() if name == _STARTED}


@dataclass(frozen=True, slots=True)
class CounterDelta:
    name: str
    labels: Mapping[str, str]
    delta: float | None


@dataclass(frozen=True, slots=True)
class HistogramDelta:
    """``mean`` is that of the observations between the scrapes; None without any, or after a reset."""

    name: str
    labels: Mapping[str, str]
    count: float | None
    sum: float | None

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.sum is not None and self.count else None


@dataclass(frozen=True, slots=True)
class GaugePair:
    name: str
    labels: Mapping[str, str]
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class ScrapeDelta:
    """``resets`` names what was reset; ``restarted`` is true if the process is another one than before."""

    counters: tuple[CounterDelta, ...] = ()
    histograms: tuple[HistogramDelta, ...] = ()
    gauges: tuple[GaugePair, ...] = ()
    resets: tuple[str, ...] = ()
    restarted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Only what moved, or was reset: a server shows thousands of series that do not change."""
        return {
            "restarted": self.restarted,
            "resets": list(self.resets),
            "counters": [
                {"name": c.name, "labels": dict(c.labels), "delta": c.delta} for c in self.counters if c.delta != 0
            ],
            "histograms": [
                {"name": h.name, "labels": dict(h.labels), "count": h.count, "sum": h.sum, "mean": h.mean}
                for h in self.histograms
                if h.count != 0
            ],
            "gauges": [
                {"name": g.name, "labels": dict(g.labels), "before": g.before, "after": g.after}
                for g in self.gauges
                if g.before != g.after
            ],
        }


@dataclass(slots=True)
class _Difference:
    before: Scrape
    after: Scrape
    restarted: bool
    resets: dict[str, None] = field(default_factory=dict)

    def of(self, name: str, labels: Labels) -> float | None:
        """A series that is new began at 0, unless its process did too."""
        new, old = self.after.values.get((name, labels)), self.before.values.get((name, labels), 0.0)
        if new is None or new < old or self.restarted or self._recreated(name, labels):
            self.resets[name] = None
            return None
        return new - old

    def _recreated(self, name: str, labels: Labels) -> bool:
        base = name.removesuffix("_total").removesuffix("_count").removesuffix("_sum") + _CREATED
        was, now = self.before.values.get((base, labels)), self.after.values.get((base, labels))
        return was is not None and now is not None and was != now


def parse_scrape(text: str, where: str) -> Scrape:
    try:
        families_of = load_target("prometheus_client.parser:text_string_to_metric_families")
    except ModuleNotFoundError:
        raise MissingDependencyError("prometheus-client", "live", "reading a server's metrics") from None
    values: dict[tuple[str, Labels], float] = {}
    kinds: dict[str, str] = {}
    try:
        for family in families_of(text):
            for sample in family.samples:
                if math.isnan(sample.value):
                    continue
                name, is_total = sample.name, sample.name.endswith("_total")
                values[name, tuple(sorted(sample.labels.items()))] = sample.value
                kinds[name] = "counter" if family.type == "unknown" and is_total else family.type
    except (ValueError, IndexError, KeyError) as error:
        raise ConfigurationError(f"{where} does not answer in Prometheus' text format: {error}") from None
    return Scrape(values, kinds)


def difference(before: Scrape, after: Scrape) -> ScrapeDelta:
    started_before, started_after = before.started(), after.started()
    restarted = any(started_after.get(labels, was) != was for labels, was in started_before.items())
    between = _Difference(before, after, restarted)
    counters, histograms, gauges = [], [], []
    kinds = {**before.kinds, **after.kinds}
    for name, labels in sorted({*before.values, *after.values}):
        kind, shown = kinds[name], dict(labels)
        if name.endswith(_CREATED) and kind in ("counter", "histogram", "summary", "gauge"):
            continue
        if kind == "counter":
            counters.append(CounterDelta(name, shown, between.of(name, labels)))
        elif kind in ("histogram", "summary") and name.endswith("_count"):
            base = name.removesuffix("_count")
            total = between.of(f"{base}_sum", labels) if (f"{base}_sum", labels) in after.values else None
            histograms.append(HistogramDelta(base, shown, between.of(name, labels), total))
        elif kind in ("gauge", "unknown"):
            gauges.append(GaugePair(name, shown, before.values.get((name, labels)), after.values.get((name, labels))))
    return ScrapeDelta(tuple(counters), tuple(histograms), tuple(gauges), tuple(between.resets), restarted)
