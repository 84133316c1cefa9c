"""Prometheus metrics of the router. Labels are bounded: names of current replicas, fixed words, status codes.

The series of a removed replica are deleted: pods come and go under new names for as long as the router runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from semgate.fleet import Replica
from semgate.router.state.decisions import DecisionRecord

_LATENCY_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_DECIDE_S: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1)
GONE: Final = "(left)"  # an answer may end after its replica was removed
Sample = tuple[str, str, str, dict[str, str], float]  # kind, name, help, labels, value


class RouterMetrics:
    """One registry per router: tests and two routers in one process do not share counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        made = self.registry
        self.requests = Counter(
            "semgate_requests_total", "Requests by outcome and status.", ["outcome", "status"], registry=made
        )
        self.routes = Counter(
            "semgate_routes_total", "Decisions by policy and evidence.", ["policy", "route"], registry=made
        )
        self.attempts = Counter(
            "semgate_attempts_total", "Attempts on replicas by result.", ["replica", "result"], registry=made
        )
        self.retries = Counter(
            "semgate_retries_total", "Retries by the cause of the previous failure.", ["cause"], registry=made
        )
        self.in_flight = Gauge("semgate_in_flight", "Requests being served.", registry=made)
        self.ttft_s = Histogram(
            "semgate_ttft_seconds",
            "Seconds from the request to the first token of the answer.",
            ["route"],
            buckets=_LATENCY_S,
            registry=made,
        )
        self.total_s = Histogram(
            "semgate_request_seconds",
            "Seconds from the request to the end of the answer.",
            buckets=_LATENCY_S,
            registry=made,
        )
        self.decide_s = Histogram(
            "semgate_decide_seconds", "Seconds a placement decision took.", buckets=_DECIDE_S, registry=made
        )
        self._results: dict[str, set[str]] = {}
        self.reloads = Counter("semgate_reloads_total", "Reloads of the replicas by result.", ["result"], registry=made)

    def finished(self, record: DecisionRecord) -> None:
        self.requests.labels(record.outcome, str(record.status or 0)).inc()
        self.total_s.observe(record.total_ms / 1e3)
        for attempt in record.attempts:
            self._attempted(attempt.replica, attempt.fault or str(attempt.status))
        for attempt in record.attempts[:-1]:
            self.retries.labels(attempt.fault or str(attempt.status)).inc()
        if record.replica is not None:
            self.routes.labels(record.policy, record.route).inc()
            self.decide_s.observe(record.decide_us / 1e6)
        if record.ttft_ms is not None:
            self.ttft_s.labels(record.route).observe(record.ttft_ms / 1e3)

    def replica_added(self, replica: Replica) -> None:
        self._results[replica.name] = set()

    def replica_removed(self, replica: Replica) -> None:
        for result in self._results.pop(replica.name, ()):
            self.attempts.remove(replica.name, result)

    def cache_lost(self, replica: Replica) -> None:
        return None

    def _attempted(self, replica: str, result: str) -> None:
        results = self._results.get(replica)
        if results is not None:
            results.add(result)
        self.attempts.labels(replica if results is not None else GONE, result).inc()

    def observe(self, read: Callable[[], Iterable[Sample]]) -> None:
        """Registers counters of other parts, read on every scrape."""
        self.registry.register(_Read(read))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Read(Collector):
    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for kind, name, about, labels, value in self._read():
            family = families.get(name)
            if family is None:
                made = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                family = families[name] = made(name, about, labels=sorted(labels))
            family.add_metric([labels[key] for key in sorted(labels)], value)
        return families.values()
