"""Prometheus metrics of the proxy. No label comes from a client: paths are from a fixed list, codes are numbers.

Counting costs about 1 us per request; the text is rendered on scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from semgate.proxy.exchange import Exchange
from semgate.proxy.writer import TraceWriter

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        rows, so_far = [], 0
        for edge, count in zip((*map(str, SECONDS), "+Inf"), self.counts, strict=True):
            so_far += count
            rows.append((edge, float(so_far)))
        return rows


class ProxyTelemetry:
    """A Prometheus collector; only the event loop writes its numbers."""

    def __init__(self, writer: TraceWriter, torn_lines: int = 0) -> None:
        self._writer = writer
        self._torn_lines = torn_lines
        self.in_flight = 0
        self.answer_bytes = 0
        self._requests: dict[tuple[str, str, str], int] = {}
        self._first_token = Histogram()
        self._first_byte = Histogram()
        self._total = Histogram()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._guard: Callable[[], Iterable[Metric]] = tuple

    def count(self, path: str, status: int | None, outcome: str) -> None:
        key = (path, "none" if status is None else str(status), outcome)
        self._requests[key] = self._requests.get(key, 0) + 1

    def observe(self, exchange: Exchange) -> None:
        """Counts a finished exchange; times are recorded only if it succeeded."""
        self.count(exchange.path, exchange.status, exchange.outcome)
        if exchange.outcome != "ok":
            return
        self._total.observe(exchange.ended_s - exchange.asked_s)
        if exchange.first_byte_s is not None:
            self._first_byte.observe(exchange.first_byte_s - exchange.asked_s)
        if exchange.scan is not None and exchange.scan.first_token_s is not None:
            self._first_token.observe(exchange.scan.first_token_s - exchange.asked_s)

    def observe_guard(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._guard = collect

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "semgate_proxy_requests", "Requests by path, status and outcome.", labels=("path", "status", "outcome")
        )
        for labels, value in tuple(self._requests.items()):
            requests.add_metric(labels, value)
        yield requests
        yield GaugeMetricFamily("semgate_proxy_in_flight", "Requests in flight.", value=self.in_flight)
        yield CounterMetricFamily("semgate_proxy_answer_bytes", "Bytes of answers forwarded.", value=self.answer_bytes)
        for name, about, held in (
            ("ttft", "Seconds from the request to the first event with a token.", self._first_token),
            ("first_byte", "Seconds from the request to the first byte of the answer.", self._first_byte),
            ("duration", "Seconds from the request to the last byte of the answer.", self._total),
        ):
            yield HistogramMetricFamily(
                f"semgate_proxy_{name}_seconds", about, buckets=held.buckets(), sum_value=held.total
            )
        yield from self._of_writer()
        yield from self._guard()

    def _of_writer(self) -> Iterable[Metric]:
        counts = self._writer.counts
        yield GaugeMetricFamily(
            "semgate_proxy_trace_queue", "Exchanges waiting to be written.", value=self._writer.waiting
        )
        yield CounterMetricFamily("semgate_proxy_trace_records", "Records written to disk.", value=counts.written)
        yield CounterMetricFamily(
            "semgate_proxy_trace_torn_lines", "Partial lines removed from trace files.", value=self._torn_lines
        )
        dropped = CounterMetricFamily(
            "semgate_proxy_trace_dropped", "Exchanges for which no record was written.", labels=("reason",)
        )
        dropped.add_metric(("queue_full",), counts.dropped_full)
        dropped.add_metric(("error",), counts.dropped_error)
        dropped.add_metric(("no_prompt",), counts.skipped)
        yield dropped
