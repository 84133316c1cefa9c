"""Run by the engine's interpreter: records figures, carries them as the engine does, and prints what /metrics shows."""

from __future__ import annotations

import importlib
import json
from typing import Any

from vllm.config import VllmConfig

from semblend.contract import Declined, DeclineReason, FaultContained
from semblend.integration.core.metrics import MAX_SAMPLES, MetricsRecorder
from semblend.integration.vllm.stats import SemBlendPromMetrics, SemBlendStats

# Both come with the engine; they are not among our development tools.
msgspec: Any = importlib.import_module("msgspec")
prometheus: Any = importlib.import_module("prometheus_client")
TYPES: Any = {kind: kind for kind in (prometheus.Gauge, prometheus.Counter, prometheus.Histogram)}


def carried(recorder: MetricsRecorder) -> dict[str, Any]:
    """Over the wire the engine uses between its processes."""
    taken = recorder.take()
    assert taken is not None
    return dict(msgspec.msgpack.decode(msgspec.msgpack.encode(SemBlendStats(data=taken).to_dict())))


def metrics() -> SemBlendPromMetrics:
    config = VllmConfig()
    return SemBlendPromMetrics(config, TYPES, ["model_name", "engine"], {0: ["m", "0"], 1: ["m", "1"]})


scheduler, worker = MetricsRecorder(), MetricsRecorder()
empty_at_first = SemBlendStats().is_empty() and scheduler.take() is None
scheduler.record_lookup(0.0002)
scheduler.record_lookup(0.0004)
scheduler.record(Declined("r", "no_candidate"))
scheduler.record(Declined("r", DeclineReason.STALE))
scheduler.add("evicted_donors", 3)
scheduler.set_gauges(donors=7)
worker.record_load(reused=900, computed=100, load_s=0.02, compute_s=0.3)
worker.record_load(reused=50, computed=0, load_s=0.01, compute_s=0.0)
worker.record_capture(tokens=2048, seconds=0.004)
worker.record(FaultContained("r", "load", "broken"))
worker.set_gauges(host_bytes=4096)

both = SemBlendStats(data=carried(worker)).aggregate(SemBlendStats(data=carried(scheduler)))
line = both.reduce()

shown = metrics()
shown.observe(both.to_dict(), engine_idx=1)
again = metrics()
again.observe(both.to_dict(), engine_idx=1)

flood = MetricsRecorder()
for _ in range(MAX_SAMPLES + 5):
    flood.record_lookup(0.001)

text = prometheus.generate_latest(prometheus.REGISTRY).decode()
samples = {
    row.rsplit(" ", 1)[0]: float(row.rsplit(" ", 1)[1]) for row in text.splitlines() if row.startswith("vllm:semblend")
}
print(
    "RESULT "
    + json.dumps(
        {
            "empty_at_first": empty_at_first,
            "empty_after_take": worker.take() is None,
            "line": line,
            "samples": samples,
            "flood": [len(flood.data["samples"]["lookup_seconds"]), flood.data["counters"]],
        }
    )
)
