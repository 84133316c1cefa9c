"""Metrics of the router: read when they are scraped, removed with the replica they belong to."""

from __future__ import annotations

from dataclasses import replace

from semgate.fleet import Endpoint
from semgate.router.state.decisions import Attempt, DecisionRecord
from semgate.router.state.metrics import RouterMetrics
from semgate.router.state.roster import Roster

RECORD = DecisionRecord(
    request_id="r1",
    at_unix_ms=0,
    path="/v1/completions",
    tenant="t",
    session=None,
    stream=False,
    replica="a",
    route="cold_route",
    policy="round_robin",
    reason="x",
    exact_blocks=0,
    prompt_blocks=None,
    donor_tokens=0,
    similarity=None,
    scores_ms=(),
    decide_us=1.0,
    attempts=(),
    outcome="complete",
    status=200,
    first_byte_ms=1.0,
    ttft_ms=None,
    total_ms=1.0,
    answer_bytes=1,
    prompt_tokens=None,
    cached_tokens=None,
)


def test_metrics_of_other_parts_are_read_when_asked_for() -> None:
    metrics = RouterMetrics()
    values = {"a": 1.0}
    metrics.observe(lambda: [("gauge", "semgate_test", "Test.", {"replica": name}, v) for name, v in values.items()])
    assert b'semgate_test{replica="a"} 1.0' in metrics.text()
    values.clear()
    values["b"] = 2.0
    assert b'replica="a"' not in metrics.text(), "a replica that left takes its series along"
    assert b'semgate_test{replica="b"} 2.0' in metrics.text()


def test_a_replica_that_leaves_takes_its_attempts_along() -> None:
    metrics = RouterMetrics()
    roster = Roster((metrics,))
    for number in range(50):
        roster.apply([Endpoint(f"pod-{number}", "http://a:1")])
        metrics.finished(replace(RECORD, attempts=(Attempt(f"pod-{number}", 200, None, 1.0),)))
        metrics.finished(replace(RECORD, attempts=(Attempt(f"pod-{number - 1}", None, "cut_reset", 1.0),)))
    lines = [line for line in metrics.text().decode().splitlines() if line.startswith("semgate_attempts_total{")]
    assert sorted(lines) == [
        'semgate_attempts_total{replica="(left)",result="cut_reset"} 50.0',
        'semgate_attempts_total{replica="pod-49",result="200"} 1.0',
    ]
