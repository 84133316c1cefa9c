"""The connector's figures on the engine's own ``/metrics``: both halves record, vLLM carries, Prometheus shows.

Statistics travel as plain dictionaries from workers and scheduler to the API server, where the metrics are observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
    PromMetric,
    PromMetricT,
)
from vllm.v1.metrics.prometheus import REGISTRY

MAX_SAMPLES: Final = 1024  # per histogram and interval; what is beyond is counted as lost, never silently dropped
MAX_LABELS: Final = 64

COUNTERS: Final = {
    "lookups": "Look-ups for donors.",
    "blended_requests": "Requests into which donor KV was really loaded.",
    "reused_tokens": "Tokens whose KV was loaded from a donor.",
    "computed_tokens": "Tokens the sparse forward computed between loaded runs.",
    "captured_tokens": "Tokens whose KV was stored for later recipients.",
    "studied_tokens": "Tokens computed once more, alone, to give passages of blended requests a donor.",
    "evicted_donors": "Donors dropped to stay within the budget.",
    "lost_samples": "Timings left out of the histograms because an interval held too many.",
}
LABELLED: Final = {
    "declined": ("reason", "Requests declined, by reason."),
    "faults": ("stage", "Faults contained, by stage; their requests went cold."),
}
_FAST: Final = (1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0)
_SLOW: Final = (1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
HISTOGRAMS: Final = {
    "lookup_seconds": (_FAST, "Time of one look-up on the scheduler's thread."),
    "load_seconds": (_SLOW, "Time to load the donor KV of one request."),
    "sparse_forward_seconds": (_SLOW, "Time to compute the holes of one request."),
    "capture_seconds": (_SLOW, "Time of one step's capture."),
    "study_seconds": (_SLOW, "Time of one idle step's study."),
}
GAUGES: Final = {"donors": "Donors that can be found.", "host_bytes": "Bytes of stored donor KV per worker."}


@dataclass
class SemBlendStats(KVConnectorStats):
    """Figures since the last hand-over. ``data`` holds numbers, strings, lists and dictionaries only."""

    def __post_init__(self) -> None:
        self.data = {**_empty(), **self.data}

    def record_lookup(self, seconds: float) -> None:
        """One question to the planner; a request may be asked about more than once."""
        self._add("lookups", 1)
        self._sample("lookup_seconds", seconds)

    def record_decline(self, reason: str) -> None:
        """One request that ended without loaded KV."""
        self._count("declined", reason)

    def record_load(self, reused: int, computed: int, load_s: float, compute_s: float) -> None:
        """One request into which KV was loaded; ``compute_s`` is left out when nothing had to be computed."""
        self._add("blended_requests", 1)
        self._add("reused_tokens", reused)
        self._add("computed_tokens", computed)
        self._sample("load_seconds", load_s)
        if computed:
            self._sample("sparse_forward_seconds", compute_s)

    def record_capture(self, tokens: int, seconds: float) -> None:
        self._add("captured_tokens", tokens)
        self._sample("capture_seconds", seconds)

    def record_study(self, tokens: int, seconds: float) -> None:
        self._add("studied_tokens", tokens)
        self._sample("study_seconds", seconds)

    def record_fault(self, stage: str) -> None:
        self._count("faults", stage)

    def record_evictions(self, n: int) -> None:
        self._add("evicted_donors", n)

    def set_gauges(self, donors: int | None = None, host_bytes: int | None = None) -> None:
        """The latest state; None leaves a gauge to the other half."""
        for name, value in (("donors", donors), ("host_bytes", host_bytes)):
            if value is not None:
                self.data["gauges"][name] = int(value)

    def take(self) -> SemBlendStats | None:
        """What was recorded, as an object of its own, or None; recording begins anew."""
        if self.is_empty():
            return None
        taken = SemBlendStats(data=self.data)
        self.reset()
        return taken

    def reset(self) -> None:
        self.data = _empty()

    def is_empty(self) -> bool:
        return not any(self.data[part] for part in _PARTS)

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Sums and joined samples. Gauges: the later snapshot wins, across ranks the larger would be the same."""
        theirs = {**_empty(), **other.data}
        for name, value in theirs["counters"].items():
            self._add(name, value)
        for name, labels in theirs["labelled"].items():
            for label, value in labels.items():
                self._count(name, label, value)
        for name, samples in theirs["samples"].items():
            for sample in samples:
                self._sample(name, sample)
        self.data["gauges"].update(theirs["gauges"])
        return self

    def reduce(self) -> dict[str, int | float]:
        """One flat line for the engine's periodic log."""
        line: dict[str, int | float] = dict(self.data["counters"])
        for name, labels in self.data["labelled"].items():
            line.update({f"{name}[{label}]": value for label, value in sorted(labels.items())})
        for name, samples in self.data["samples"].items():
            line[f"{name}_mean"] = round(sum(samples) / len(samples), 6)
            line[f"{name}_max"] = round(max(samples), 6)
        line.update(self.data["gauges"])
        return line

    def _add(self, name: str, value: int) -> None:
        if value:  # plain numbers and strings only: the engine's codec knows neither numpy's nor our enumerations
            counters = self.data["counters"]
            counters[name] = counters.get(name, 0) + int(value)

    def _count(self, name: str, label: str, value: int = 1) -> None:
        labels, label = self.data["labelled"].setdefault(name, {}), str(label)
        if label not in labels and len(labels) >= MAX_LABELS:
            label = "other"
        labels[label] = labels.get(label, 0) + value

    def _sample(self, name: str, seconds: float) -> None:
        samples = self.data["samples"].setdefault(name, [])
        if len(samples) < MAX_SAMPLES:
            samples.append(float(seconds))
        else:
            self._add("lost_samples", 1)


_PARTS: Final = ("counters", "labelled", "samples", "gauges")


def _empty() -> dict[str, Any]:
    return {part: {} for part in _PARTS}


class SemBlendPromMetrics(KVConnectorPromMetrics):
    """Registers ``vllm:semblend_*`` with the engine's labels and feeds them from ``SemBlendStats.data``."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {name: self._counter(name, labelnames, text) for name, text in COUNTERS.items()}
        self._labelled = {
            name: self._counter(name, [*labelnames, label], text) for name, (label, text) in LABELLED.items()
        }
        self._histograms = {
            name: self._metric(self._histogram_cls, name, labelnames, text, buckets=buckets)
            for name, (buckets, text) in HISTOGRAMS.items()
        }
        self._gauges = {
            # With several API servers each keeps a copy; the latest is the truth, and a dead one's must not linger.
            name: self._metric(self._gauge_cls, name, labelnames, text, multiprocess_mode="mostrecent")
            for name, text in GAUGES.items()
        }
        for values in per_engine_labelvalues.values():
            for family in (self._counters, self._histograms, self._gauges):
                for metric in family.values():
                    metric.labels(*values)  # shown as 0 from the start, so that a rate has a beginning

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        data = {**_empty(), **transfer_stats_data}
        values = self.per_engine_labelvalues[engine_idx]
        for name, amount in data["counters"].items():
            if name in self._counters:
                self._counters[name].labels(*values).inc(amount)
        for name, labels in data["labelled"].items():
            for label, amount in labels.items():
                if name in self._labelled:
                    self._labelled[name].labels(*values, label).inc(amount)
        for name, samples in data["samples"].items():
            for sample in samples:
                if name in self._histograms:
                    self._histograms[name].labels(*values).observe(sample)
        for name, amount in data["gauges"].items():
            if name in self._gauges:
                self._gauges[name].labels(*values).set(amount)

    def _counter(self, name: str, labelnames: Sequence[str], text: str) -> Any:
        return self._metric(self._counter_cls, name, labelnames, text)

    @staticmethod
    def _metric(kind: Any, name: str, labelnames: Sequence[str], text: str, **options: Any) -> Any:
        """A new metric, or the one of that name that a logger before this one registered in this process."""
        full_name = f"vllm:semblend_{name}"
        try:
            return kind(name=full_name, documentation=text, labelnames=list(labelnames), **options)
        except ValueError:
            known = getattr(REGISTRY, "_names_to_collectors", {}).get(full_name)
            if known is None:
                raise
            return known
