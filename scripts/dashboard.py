"""The Grafana dashboard as code: panels in, the JSON of ``deploy/observability/dashboard.json`` out.

``python -m scripts.generate_docs`` writes it. Every series must be one that the router, the proxy or the connector
exports: a test starts them and compares (tests/integration/semgate/test_observability.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

WIDTH: Final = 8  # of 24 columns: three panels in a row
HEIGHT: Final = 7
SOURCE: Final[Mapping[str, str]] = {"type": "prometheus", "uid": "${datasource}"}
BY_JOB: Final = 'job=~"$job"'
JOBS: Final = "semgate_in_flight|semgate_proxy_in_flight|vllm:semblend_lookups_total"
LINES: Final[Mapping[str, Any]] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}


@dataclass(frozen=True, slots=True)
class Panel:
    """``queries``: PromQL by the legend of its series."""

    title: str
    about: str
    queries: Mapping[str, str]
    unit: str = "short"


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...] = field(default_factory=tuple)


def _rate(name: str, by: str, where: str = BY_JOB) -> str:
    return f"sum by ({by}) (rate({name}{{{where}}}[$__rate_interval]))"


def _sum(name: str, by: str) -> str:
    return f"sum by ({by}) ({name}{{{BY_JOB}}})"


def _least(name: str, by: str) -> str:
    return f"min by ({by}) ({name}{{{BY_JOB}}})"


def _quantile(share: float, name: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({name}_bucket{{{BY_JOB}}}[$__rate_interval])))"


ROWS: Final = (
    Row(
        "KV reuse",
        (
            Panel(
                "Reused fraction of prompt tokens",
                "Tokens whose KV was loaded from a donor; vLLM's own prefix hits are not among them.",
                {
                    "{{pod}}{{instance}}": f"{_rate('vllm:semblend_reused_tokens_total', 'pod, instance')}"
                    f" / {_rate('vllm:prompt_tokens_total', 'pod, instance')}"
                },
                "percentunit",
            ),
            Panel(
                "Declines by reason",
                "Requests into which no donor KV was loaded. docs/operate/troubleshooting.md explains each reason.",
                {"{{reason}}": _rate("vllm:semblend_declined_total", "reason")},
                "reqps",
            ),
            Panel(
                "Faults by stage",
                "Contained: the engine prefilled these requests.",
                {"{{stage}}": _rate("vllm:semblend_faults_total", "stage")},
                "reqps",
            ),
            Panel(
                "Repairs",
                "Tokens computed again after an answer, and tokens of exact KV that entered the engine's prefix cache.",
                {
                    "repaired": f"sum(rate(vllm:semblend_repaired_tokens_total{{{BY_JOB}}}[$__rate_interval]))",
                    "published": f"sum(rate(vllm:semblend_published_tokens_total{{{BY_JOB}}}[$__rate_interval]))",
                },
                "ops",
            ),
            Panel(
                "Donor memory",
                "Bytes of stored donor KV per worker; the option host_bytes is its limit.",
                {"{{pod}}{{instance}}": f"max by (pod, instance) (vllm:semblend_host_bytes{{{BY_JOB}}})"},
                "bytes",
            ),
            Panel(
                "Donors evicted",
                "Dropped to stay within donor memory. Evictions while requests find no candidate: it is too small.",
                {"{{pod}}{{instance}}": _rate("vllm:semblend_evicted_donors_total", "pod, instance")},
                "ops",
            ),
        ),
    ),
    Row(
        "Clients",
        (
            Panel(
                "Requests by outcome",
                "complete; client_left; cut: lost after the first byte; refused: no replica could answer.",
                {"{{outcome}} {{status}}": _rate("semgate_requests_total", "outcome, status")},
                "reqps",
            ),
            Panel(
                "Requests in flight", "Per router.", {"{{pod}}{{instance}}": _sum("semgate_in_flight", "pod, instance")}
            ),
            Panel(
                "Time to first token",
                "From the request to the first token of the answer, by the evidence of its placement.",
                {
                    "p50 {{route}}": _quantile(0.5, "semgate_ttft_seconds", "route"),
                    "p99 {{route}}": _quantile(0.99, "semgate_ttft_seconds", "route"),
                },
                "s",
            ),
            Panel(
                "Request duration",
                "From the request to the end of the answer.",
                {
                    "p50": _quantile(0.5, "semgate_request_seconds"),
                    "p99": _quantile(0.99, "semgate_request_seconds"),
                },
                "s",
            ),
            Panel(
                "Retries by cause",
                "Attempts before the first byte that another replica answered.",
                {"{{cause}}": _rate("semgate_retries_total", "cause")},
                "reqps",
            ),
            Panel(
                "Sessions",
                "With a known last replica, per router.",
                {"{{pod}}{{instance}}": _sum("semgate_sessions", "pod, instance")},
            ),
        ),
    ),
    Row(
        "Placement",
        (
            Panel(
                "Decisions by evidence",
                "exact_route: leading blocks; semantic_placement: donors or similar content; cold_route: neither.",
                {"{{route}}": _rate("semgate_routes_total", "route")},
                "reqps",
            ),
            Panel(
                "Time of a decision",
                "Collecting evidence and scoring.",
                {
                    "p50": _quantile(0.5, "semgate_decide_seconds"),
                    "p99": _quantile(0.99, "semgate_decide_seconds"),
                },
                "s",
            ),
            Panel(
                "How token ids were obtained",
                "Only with a tokenizer or engine_tokenize.",
                {"{{result}}": _rate("semgate_tokenized_total", "result")},
                "reqps",
            ),
        ),
    ),
    Row(
        "Replicas",
        (
            Panel(
                "Ready replicas",
                "The lowest number that any router sees.",
                {"ready": f"min(sum by (pod, instance) (semgate_replica_ready{{{BY_JOB}}}))"},
            ),
            Panel(
                "Requests in flight by replica",
                "Sent by all routers.",
                {"{{replica}}": _sum("semgate_replica_in_flight", "replica")},
            ),
            Panel(
                "Queued prefill tokens by replica",
                "Sent by all routers and not yet computed.",
                {"{{replica}}": _sum("semgate_replica_queued_prefill_tokens", "replica")},
            ),
            Panel(
                "Attempts by result",
                "A status code, or the fault of the connection.",
                {"{{replica}} {{result}}": _rate("semgate_attempts_total", "replica, result")},
                "reqps",
            ),
            Panel(
                "Breakers opened",
                "In the last five minutes.",
                {"{{replica}}": f"sum by (replica) (increase(semgate_breaker_opened_total{{{BY_JOB}}}[5m]))"},
            ),
            Panel(
                "Waiting on the engines",
                "Requests that wait there, as the engines report, and those that no router of ours sent.",
                {
                    "waiting {{replica}}": f"max by (replica) (semgate_engine_waiting{{{BY_JOB}}})",
                    "foreign {{replica}}": _least("semgate_engine_foreign_requests", "replica"),
                },
            ),
            Panel(
                "Running on the engines",
                "As the engines report.",
                {"{{replica}}": f"max by (replica) (semgate_engine_running{{{BY_JOB}}})"},
            ),
            Panel(
                "KV cache usage",
                "As the engines report.",
                {"{{replica}}": f"max by (replica) (semgate_engine_kv_usage{{{BY_JOB}}})"},
                "percentunit",
            ),
            Panel(
                "Load reports",
                "Read, and not readable.",
                {
                    "read": f"sum(rate(semgate_load_reports_read_total{{{BY_JOB}}}[$__rate_interval]))",
                    "failed": f"sum(rate(semgate_load_reports_failed_total{{{BY_JOB}}}[$__rate_interval]))",
                },
                "ops",
            ),
        ),
    ),
    Row(
        "KV events",
        (
            Panel(
                "Connected and believed",
                "0 if any router has lost the stream, or no longer believes the replica's announcements.",
                {
                    "connected {{replica}}": _least("semgate_events_connected", "replica"),
                    "believed {{replica}}": _least("semgate_events_believed", "replica"),
                },
            ),
            Panel(
                "Blocks known by replica",
                "The lowest of all routers.",
                {"{{replica}}": _least("semgate_index_blocks", "replica")},
            ),
            Panel(
                "Event messages",
                "And gaps, replays and resynchronizations.",
                {
                    "messages": f"sum(rate(semgate_events_messages_total{{{BY_JOB}}}[$__rate_interval]))",
                    "gaps": f"sum(rate(semgate_events_gaps_total{{{BY_JOB}}}[$__rate_interval]))",
                    "replayed": f"sum(rate(semgate_events_replayed_total{{{BY_JOB}}}[$__rate_interval]))",
                    "resyncs": f"sum(rate(semgate_events_resyncs_total{{{BY_JOB}}}[$__rate_interval]))",
                },
                "ops",
            ),
        ),
    ),
    Row(
        "Telemetry proxy",
        (
            Panel(
                "Requests by outcome",
                "Of `kvmend proxy`.",
                {"{{outcome}} {{status}}": _rate("semgate_proxy_requests_total", "outcome, status")},
                "reqps",
            ),
            Panel(
                "Time to first token",
                "Seen by the proxy.",
                {
                    "p50": _quantile(0.5, "semgate_proxy_ttft_seconds"),
                    "p99": _quantile(0.99, "semgate_proxy_ttft_seconds"),
                },
                "s",
            ),
            Panel(
                "Trace records",
                "Written and dropped.",
                {
                    "written": f"sum(rate(semgate_proxy_trace_records_total{{{BY_JOB}}}[$__rate_interval]))",
                    "dropped {{reason}}": _rate("semgate_proxy_trace_dropped_total", "reason"),
                },
                "ops",
            ),
        ),
    ),
)


def queries() -> Iterator[str]:
    for row in ROWS:
        for panel in row.panels:
            yield from panel.queries.values()


def dashboard() -> str:
    made: dict[str, Any] = {
        "uid": "semgate",
        "title": "semgate",
        "tags": ["semgate", "llm"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": list(_placed()),
    }
    return json.dumps(made, indent=1) + "\n"


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "job",
            "label": "Job",
            "type": "query",
            "datasource": SOURCE,
            "query": f'label_values({{__name__=~"{JOBS}"}}, job)',
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _placed() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": 24, "h": 1}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": place}
        top += 1
        for index, panel in enumerate(row.panels):
            number += 1
            left, line = index % (24 // WIDTH) * WIDTH, index // (24 // WIDTH)
            yield _panel(number, panel, {"x": left, "y": top + line * HEIGHT, "w": WIDTH, "h": HEIGHT})
        top += -(-len(row.panels) // (24 // WIDTH)) * HEIGHT


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": dict(LINES)}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }
