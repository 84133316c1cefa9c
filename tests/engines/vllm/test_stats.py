"""The connector's figures through the engine's own classes: recorded, carried, joined and shown."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.vllm.engine_python import result_of

pytestmark = pytest.mark.engine

LABELS = 'engine="1",model_name="m"'


@pytest.fixture(scope="module")
def figures() -> Any:
    return result_of("record_figures.py")


def test_nothing_recorded_is_nothing_sent(figures: Any) -> None:
    assert figures["empty_at_first"]
    assert figures["empty_after_take"]


def test_both_halves_end_in_one_line_of_the_log(figures: Any) -> None:
    assert figures["line"] == {
        "lookups": 2,
        "evicted_donors": 3,
        "blended_requests": 2,
        "reused_tokens": 950,
        "computed_tokens": 100,
        "captured_tokens": 2048,
        "declined[no_candidate]": 1,
        "declined[stale]": 1,
        "faults[load]": 1,
        "lookup_seconds_mean": 0.0003,
        "lookup_seconds_max": 0.0004,
        "load_seconds_mean": 0.015,
        "load_seconds_max": 0.02,
        "sparse_forward_seconds_mean": 0.3,
        "sparse_forward_seconds_max": 0.3,
        "capture_seconds_mean": 0.004,
        "capture_seconds_max": 0.004,
        "donors": 7,
        "host_bytes": 4096,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lookups_total", 4),
        ("blended_requests_total", 4),
        ("reused_tokens_total", 1900),
        ("computed_tokens_total", 200),
        ("captured_tokens_total", 4096),
        ("evicted_donors_total", 6),
        ("lookup_seconds_count", 4),
        ("load_seconds_count", 4),
        ("sparse_forward_seconds_count", 2),
        ("capture_seconds_count", 2),
        ("donors", 7),
        ("host_bytes", 4096),
    ],
)
def test_each_metric_carries_the_engines_labels_and_a_second_logger_adds_to_it(
    figures: Any, name: str, value: float
) -> None:
    assert figures["samples"][f"vllm:semblend_{name}{{{LABELS}}}"] == value


def test_reasons_and_stages_are_labels(figures: Any) -> None:
    samples = figures["samples"]
    assert samples['vllm:semblend_declined_total{engine="1",model_name="m",reason="no_candidate"}'] == 2
    assert samples['vllm:semblend_declined_total{engine="1",model_name="m",reason="stale"}'] == 2
    assert samples['vllm:semblend_faults_total{engine="1",model_name="m",stage="load"}'] == 2


def test_an_idle_engine_is_shown_as_zero(figures: Any) -> None:
    assert figures["samples"]['vllm:semblend_lookups_total{engine="0",model_name="m"}'] == 0


def test_samples_are_bounded_and_what_is_lost_is_counted(figures: Any) -> None:
    kept, counters = figures["flood"]
    assert kept == 1024
    assert counters == {"lookups": 1029, "lost_samples": 5}
