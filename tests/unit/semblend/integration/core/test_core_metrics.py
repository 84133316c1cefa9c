"""One table of metric names for every engine: recorded from events, merged, exposed under the engine's prefix."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from semblend.contract import (
    Declined,
    DonorEvicted,
    DonorRegistered,
    Event,
    FaultContained,
    LookupFinished,
    Materialized,
)
from semblend.integration.core.metrics import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    LABELLED,
    MAX_LABELS,
    MAX_SAMPLES,
    MetricsRecorder,
    summary_line,
)
from semblend.integration.sglang.metrics import EngineMetrics

EVENTS: list[Event] = [
    LookupFinished("r", "n", 900, 0, 800, 1, ("d",), None, None, 400.0),
    Materialized("r", ("d",), 800, 60, 1, 20.0, 300.0),
    Declined("s", "no_candidate"),
    FaultContained("s", "load", "broken"),
    DonorEvicted("d", "n", "capacity"),
]


def test_events_become_figures_under_the_common_names() -> None:
    recorder = MetricsRecorder()
    for event in EVENTS:
        recorder.record(event)
    taken = recorder.take()
    assert taken is not None
    assert recorder.take() is None
    assert summary_line(taken) == {
        "lookups": 1,
        "blended_requests": 1,
        "reused_tokens": 800,
        "computed_tokens": 60,
        "evicted_donors": 1,
        "declined[no_candidate]": 1,
        "faults[load]": 1,
        "lookup_seconds_mean": 0.0004,
        "lookup_seconds_max": 0.0004,
        "load_seconds_mean": 0.02,
        "load_seconds_max": 0.02,
        "sparse_forward_seconds_mean": 0.3,
        "sparse_forward_seconds_max": 0.3,
    }
    recorder.merge(taken)
    recorder.merge(taken)
    assert recorder.data["counters"]["reused_tokens"] == 1600
    assert recorder.data["labelled"] == {"declined": {"no_candidate": 2}, "faults": {"load": 2}}


def test_fetches_of_the_fleet_are_counted_by_outcome_and_timed_if_bytes_came() -> None:
    recorder = MetricsRecorder()
    recorder.record_fetch("fetched", 1000, 0.5)
    recorder.record_fetch("missing", 0, 0.1)
    assert summary_line(recorder.data) == {
        "fleet_read_bytes": 1000,
        "fleet_fetches[fetched]": 1,
        "fleet_fetches[missing]": 1,
        "fleet_read_seconds_mean": 0.5,
        "fleet_read_seconds_max": 0.5,
    }


def test_samples_and_labels_are_bounded_and_the_excess_is_counted() -> None:
    recorder = MetricsRecorder()
    for number in range(MAX_SAMPLES + 5):
        recorder.record_lookup(0.001)
        recorder.count("declined", f"reason-{number}")
    assert len(recorder.data["samples"]["lookup_seconds"]) == MAX_SAMPLES
    assert recorder.data["counters"]["lost_samples"] == 5
    assert len(recorder.data["labelled"]["declined"]) == MAX_LABELS + 1
    assert recorder.data["labelled"]["declined"]["other"] == MAX_SAMPLES + 5 - MAX_LABELS


@pytest.fixture
def prometheus() -> Any:
    return pytest.importorskip("prometheus_client")


def test_sglang_exposes_every_name_of_the_table_and_counts_from_its_events(prometheus: Any) -> None:
    metrics = EngineMetrics(SimpleNamespace(enable_metrics=True, served_model_name="m"))
    metrics.count_donors = lambda: 3
    for event in [DonorRegistered("q", "d", "n", 2048, 128), *EVENTS]:
        metrics.record(event)
    text = prometheus.generate_latest(prometheus.REGISTRY).decode()
    exposed = {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("sglang:semblend_")
    }
    label = '{model_name="m"}'
    for name in COUNTERS:
        assert f"sglang:semblend_{name}_total{label}" in exposed
    for name in HISTOGRAMS:
        assert f"sglang:semblend_{name}_count{label}" in exposed
    for name in GAUGES:
        assert f"sglang:semblend_{name}{label}" in exposed
    assert exposed[f"sglang:semblend_reused_tokens_total{label}"] == 800
    assert exposed[f"sglang:semblend_captured_tokens_total{label}"] == 2048
    assert exposed[f"sglang:semblend_donors{label}"] == 3
    assert exposed['sglang:semblend_declined_total{model_name="m",reason="no_candidate"}'] == 1
    assert exposed['sglang:semblend_faults_total{model_name="m",stage="load"}'] == 1
    assert set(LABELLED) == {"declined", "faults", "fleet_fetches", "fleet_searches", "fleet_audits"}


def test_a_server_without_metrics_registers_nothing() -> None:
    EngineMetrics(SimpleNamespace(enable_metrics=False)).record(EVENTS[0])
