"""The result of a load (``sembench.load.v1``) and its warnings; docs/guides/load.md names every key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sembench.environment import describe_environment
from sembench.load.summary import value_of
from semblend.contract import Evidence

LOAD_VERSION: Final = "sembench.load.v1"
_BUSY_FRACTION: Final = 0.85
_NOTICEABLE: Final = 0.05  # of the median TTFT
_MIN_MS: Final = 1.0


def load_result(
    *,
    run: Mapping[str, Any],
    config: Mapping[str, Any],
    figures: Mapping[str, Any],
    client: Mapping[str, Any],
    server_metrics: Mapping[str, Any] | None,
) -> dict[str, Any]:
    wall_s = figures["throughput"]["wall_s"]
    result = {
        "result_version": LOAD_VERSION,
        "created_at_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": {"kind": "load", "evidence": str(Evidence.MEASURED_LIVE), **run},
        "config": dict(config),
        "environment": describe_environment(),
        **figures,
        "client": {**client, "cpu_share_of_one_core": client["cpu_s"] / wall_s if wall_s else None},
        "server_metrics": server_metrics,
    }
    return {**result, "warnings": list(_warnings(result))}


def _warnings(result: Mapping[str, Any]) -> Iterator[str]:
    """What a reader must know before trusting the figures, one sentence each."""
    requests, client = result["requests"], result["client"]
    if not result["run"]["complete"]:
        yield f"interrupted: {requests['cancelled']} requests were cancelled; the figures cover only those that ended"
    if failed := requests["sent"] - requests["ok"] - requests["cancelled"]:
        yield f"{failed} of {requests['sent']} requests failed; latencies cover only the others"
    if requests["without_usage"]:
        yield f"{requests['without_usage']} replies came without usage: each chunk is counted as one token"
    if requests["without_token"]:
        yield f"{requests['without_token']} replies held no token, so they have no TTFT"
    median = value_of(result["latency_ms"]["ttft"], 50)
    noticeable = max(_MIN_MS, _NOTICEABLE * median) if median is not None else None
    cpu = client["cpu_share_of_one_core"]
    if cpu is not None and cpu > _BUSY_FRACTION:
        yield f"the client used {100 * cpu:.0f} % of one core: it may itself be the bottleneck"
    for name, what, summary in (
        ("lag", "the event loop was late", client["event_loop_lag_ms"]),
        ("lateness", "requests were sent late", result["lateness_ms"]),
    ):
        late = value_of(summary, 99)
        if late is not None and noticeable is not None and late > noticeable:
            yield f"{what} by {late:.1f} ms (p99 of {name}), against a median TTFT of {median:.1f} ms"
    metrics = result["server_metrics"] or {}
    if "fault" in metrics:
        yield f"no second scrape: {metrics['fault']}"
    elif metrics and (metrics["restarted"] or metrics["resets"]):
        what = "the server restarted" if metrics["restarted"] else f"counters were reset ({metrics['resets'][0]}, ...)"
        yield f"{what} between the two scrapes: those differences are not measured"
