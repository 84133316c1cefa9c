"""The adapters' metrics: one table of names, a recorder, and the Prometheus families ``<engine>:semblend_<name>``.

Events go into the recorder, which holds plain numbers; an engine takes them and has them observed where its metrics
are exposed (vLLM in the API server, SGLang in the scheduler's process).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from semblend.contract import Declined, DonorEvicted, Event, FaultContained, LookupFinished, Materialized

MAX_SAMPLES: Final = 1024  # per histogram and interval; the excess is counted in lost_samples
MAX_LABELS: Final = 64

COUNTERS: Final = {
    "lookups": "Donor look-ups.",
    "blended_requests": "Requests into which donor KV was loaded.",
    "reused_tokens": "Tokens whose KV was loaded from a donor.",
    "cache_loaded_tokens": "Tokens loaded from donors in the engine's own cache; the others came from host memory.",
    "computed_tokens": "Tokens computed inside a claim, between loaded runs or in place of loaded tokens.",
    "captured_tokens": "Tokens whose KV was kept for later recipients.",
    "studied_tokens": "Tokens of isolated prefills: passages of blended requests, computed again on their own.",
    "repaired_tokens": "Tokens of blended requests computed again after the answer, so that their KV is exact.",
    "published_tokens": "Tokens of blended requests whose exact KV entered the engine's prefix cache.",
    "evicted_donors": "Donors dropped to stay within the budget.",
    "fleet_read_bytes": "Bytes read from the fleet's store for donors of other replicas.",
    "lost_samples": "Timings dropped from the histograms because one interval had too many.",
}
LABELLED: Final = {
    "declined": ("reason", "Requests declined, by reason."),
    "faults": ("stage", "Contained faults, by stage; their requests were prefilled by the engine."),
    "fleet_fetches": ("outcome", "Donors of other replicas that were fetched, or not, by outcome."),
    "fleet_searches": ("result", "Requests for which donors of other replicas were looked for, or not, by result."),
    "fleet_audits": ("result", "Fetched donors that were computed again while the engine was idle, by result."),
}
_FAST: Final = (1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0)
_SLOW: Final = (1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
HISTOGRAMS: Final = {
    "lookup_seconds": (_FAST, "Time of one look-up on the scheduler's thread."),
    "load_seconds": (_SLOW, "Time to load the donor KV of one request."),
    "sparse_forward_seconds": (_SLOW, "Time to compute the gaps of one request."),
    "capture_seconds": (_SLOW, "Time to copy donor KV in one step."),
    "study_seconds": (_SLOW, "Time of an isolated prefill in one idle step."),
    "repair_seconds": (_SLOW, "Time of a repair in one step."),
    "fleet_read_seconds": (_SLOW, "Time to read and verify one donor of another replica."),
}
GAUGES: Final = {"donors": "Donors in the index.", "host_bytes": "Bytes of stored donor KV per worker."}

_PARTS: Final = ("counters", "labelled", "samples", "gauges")


def empty() -> dict[str, Any]:
    return {part: {} for part in _PARTS}


def is_empty(data: Mapping[str, Any]) -> bool:
    return not any(data[part] for part in _PARTS)


class MetricsRecorder:
    """Values since the last ``take``. ``data`` holds plain numbers, strings, lists and dictionaries only.

    Any thread may record: faults are also contained on the decoder's thread.
    """

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        self.data: dict[str, Any] = {**empty(), **(data or {})}
        self._lock = threading.Lock()

    def record(self, event: Event) -> None:
        """Count what an event reports; events without a metric are ignored."""
        match event:
            case LookupFinished():
                self.record_lookup((event.duration_us or 0.0) / 1e6)
            case Declined():
                self.count("declined", event.reason)
            case FaultContained():
                self.count("faults", event.stage)
            case DonorEvicted():
                self.add("evicted_donors", 1)
            case Materialized():
                load_s, compute_s = (event.load_ms or 0.0) / 1e3, (event.compute_ms or 0.0) / 1e3
                self.record_load(event.reused_tokens, event.computed_tokens, load_s, compute_s)
            case _:
                pass

    def record_lookup(self, seconds: float) -> None:
        """One question to the planner; a request may be looked up more than once."""
        self.add("lookups", 1)
        self.sample("lookup_seconds", seconds)

    def record_load(self, reused: int, computed: int, load_s: float, compute_s: float) -> None:
        """One request into which KV was loaded; ``compute_s`` is left out when nothing had to be computed."""
        self.add("blended_requests", 1)
        self.add("reused_tokens", reused)
        self.add("computed_tokens", computed)
        self.sample("load_seconds", load_s)
        if computed:
            self.sample("sparse_forward_seconds", compute_s)

    def record_capture(self, tokens: int, seconds: float) -> None:
        self.add("captured_tokens", tokens)
        self.sample("capture_seconds", seconds)

    def record_prefill(self, tokens: int, seconds: float) -> None:
        self.add("studied_tokens", tokens)
        self.sample("study_seconds", seconds)

    def record_repair(self, tokens: int, seconds: float) -> None:
        self.add("repaired_tokens", tokens)
        self.sample("repair_seconds", seconds)

    def record_fetch(self, outcome: str, read_bytes: int, seconds: float) -> None:
        """One donor of another replica; timed only if its bytes came."""
        self.count("fleet_fetches", outcome)
        self.add("fleet_read_bytes", read_bytes)
        if read_bytes:
            self.sample("fleet_read_seconds", seconds)

    def set_gauges(self, donors: int | None = None, host_bytes: int | None = None) -> None:
        """The latest state; None leaves a gauge as it is."""
        with self._lock:
            for name, value in (("donors", donors), ("host_bytes", host_bytes)):
                if value is not None:
                    self.data["gauges"][name] = int(value)

    def take(self) -> dict[str, Any] | None:
        """What was recorded since the last call, or None."""
        with self._lock:
            if is_empty(self.data):
                return None
            taken, self.data = self.data, empty()
        return taken

    def merge(self, other: Mapping[str, Any]) -> None:
        """Add what another recorder took. Of gauges the later value wins; across ranks they are equal."""
        theirs = {**empty(), **other}
        for name, value in theirs["counters"].items():
            self.add(name, value)
        for name, labels in theirs["labelled"].items():
            for label, value in labels.items():
                self.count(name, label, value)
        for name, samples in theirs["samples"].items():
            for sample in samples:
                self.sample(name, sample)
        self.data["gauges"].update(theirs["gauges"])

    def add(self, name: str, value: int) -> None:
        if value:  # plain numbers and strings only: engines' codecs know neither numpy's nor our enumerations
            with self._lock:
                counters = self.data["counters"]
                counters[name] = counters.get(name, 0) + int(value)

    def count(self, name: str, label: str, value: int = 1) -> None:
        with self._lock:
            labels, label = self.data["labelled"].setdefault(name, {}), str(label)
            if label not in labels and len(labels) >= MAX_LABELS:
                label = "other"
            labels[label] = labels.get(label, 0) + value

    def sample(self, name: str, seconds: float) -> None:
        with self._lock:
            samples = self.data["samples"].setdefault(name, [])
            if len(samples) < MAX_SAMPLES:
                samples.append(float(seconds))
                return
        self.add("lost_samples", 1)


def summary_line(data: Mapping[str, Any]) -> dict[str, int | float]:
    """One flat line for an engine's periodic log."""
    line: dict[str, int | float] = dict(data["counters"])
    for name, labels in data["labelled"].items():
        line.update({f"{name}[{label}]": value for label, value in sorted(labels.items())})
    for name, samples in data["samples"].items():
        line[f"{name}_mean"] = round(sum(samples) / len(samples), 6)
        line[f"{name}_max"] = round(max(samples), 6)
    line.update(data["gauges"])
    return line


class PrometheusFamilies:
    """Counters, histograms and gauges of one engine, fed with what a recorder took.

    ``counter``, ``histogram`` and ``gauge`` are classes of ``prometheus_client`` or an engine's wrappers of them.
    ``registered`` finds a family that an earlier logger of this process registered.
    """

    def __init__(
        self,
        engine: str,
        labelnames: Sequence[str],
        *,
        counter: Any,
        histogram: Any,
        gauge: Any,
        registered: Callable[[str], Any],
    ) -> None:
        self._registered = registered
        prefix, labels = f"{engine}:semblend_", list(labelnames)
        self._counters = {name: self._made(counter, prefix + name, text, labels) for name, text in COUNTERS.items()}
        self._labelled = {
            name: self._made(counter, prefix + name, text, [*labels, label]) for name, (label, text) in LABELLED.items()
        }
        self._histograms = {
            name: self._made(histogram, prefix + name, text, labels, buckets=buckets)
            for name, (buckets, text) in HISTOGRAMS.items()
        }
        # With several API servers each keeps a copy: the most recent value is right, and a dead process's must go.
        self._gauges = {
            name: self._made(gauge, prefix + name, text, labels, multiprocess_mode="mostrecent")
            for name, text in GAUGES.items()
        }

    def show_zeros(self, values: Sequence[object]) -> None:
        """Expose every unlabelled family as 0 from the start, so that a rate has a beginning."""
        for family in (self._counters, self._histograms, self._gauges):
            for metric in family.values():
                metric.labels(*values)

    def observe(self, taken: Mapping[str, Any], values: Sequence[object]) -> None:
        data = {**empty(), **taken}
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

    def _made(self, kind: Any, name: str, text: str, labels: Sequence[str], **options: Any) -> Any:
        try:
            return kind(name=name, documentation=text, labelnames=list(labels), **options)
        except ValueError:
            if (known := self._registered(name)) is None:
                raise
            return known
