"""The adapter's metrics on SGLang's own ``/metrics`` (``--enable-metrics``), under the names every adapter uses.

The scheduler's process observes them; SGLang's server collects its processes' metrics through ``prometheus_client``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semblend.contract import DonorEvicted, DonorRegistered, Event
from semblend.integration.core.metrics import MetricsRecorder, PrometheusFamilies


class EngineMetrics:
    """What is recorded is exposed at once; nothing happens unless the server exposes metrics."""

    def __init__(self, server_args: Any) -> None:
        self.count_donors: Callable[[], int] | None = None
        self._values = [str(getattr(server_args, "served_model_name", ""))]
        self._recorder = MetricsRecorder()
        self._families = _families() if getattr(server_args, "enable_metrics", False) else None
        if self._families is not None:
            self._families.show_zeros(self._values)

    def record(self, event: Event) -> None:
        if self._families is None:
            return
        self._recorder.record(event)
        if isinstance(event, DonorRegistered):
            self._recorder.add("captured_tokens", event.tokens)
        if isinstance(event, DonorRegistered | DonorEvicted) and self.count_donors is not None:
            self._recorder.set_gauges(donors=self.count_donors())
        self._expose()

    def record_repair(self, tokens: int, seconds: float) -> None:
        """A slice of a repair was computed and is in the tree."""
        self._recorder.record_repair(tokens, seconds)
        self._recorder.add("published_tokens", tokens)
        self._expose()

    def count(self, name: str, value: str) -> None:
        """One more of a counter with a label; called on any thread."""
        self._recorder.count(name, value)

    def record_fetch(self, outcome: str, read_bytes: int, seconds: float) -> None:
        """A donor of another replica was read, or not; called on any thread."""
        self._recorder.record_fetch(outcome, read_bytes, seconds)

    def _expose(self) -> None:
        taken = self._recorder.take()
        if taken is not None and self._families is not None:
            self._families.observe(taken, self._values)


def _families() -> PrometheusFamilies:
    # The engine brings it and configures it by the environment before its processes start.
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram  # noqa: PLC0415

    return PrometheusFamilies(
        "sglang",
        ["model_name"],
        counter=Counter,
        histogram=Histogram,
        gauge=Gauge,
        registered=getattr(REGISTRY, "_names_to_collectors", {}).get,
    )
