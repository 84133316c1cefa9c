"""What a reader must know before believing a load result: each a sentence, from the result's own figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sembench.load.percentiles import value_of

_BUSY_SHARE: Final = 0.85
_NOTICEABLE: Final = 0.05  # of the median TTFT
_LEAST_MS: Final = 1.0


def warnings_of(result: Mapping[str, Any]) -> list[str]:
    return list(_warnings(result))


def _warnings(result: Mapping[str, Any]) -> Iterator[str]:
    requests, client = result["requests"], result["client"]
    if not result["run"]["complete"]:
        yield f"interrupted: {requests['cancelled']} requests were cancelled, the figures are of those that had ended"
    if failed := requests["sent"] - requests["ok"] - requests["cancelled"]:
        yield f"{failed} of {requests['sent']} requests failed; latencies are of those that did not"
    if requests["without_usage"]:
        yield f"{requests['without_usage']} answers came without usage: their tokens are counted as chunks"
    if requests["without_token"]:
        yield f"{requests['without_token']} answers held no token, and so have no TTFT"
    median = value_of(result["latency_ms"]["ttft"], 50)
    noticeable = max(_LEAST_MS, _NOTICEABLE * median) if median is not None else None
    share = client["cpu_share_of_one_core"]
    if share is not None and share > _BUSY_SHARE:
        yield f"the client used {100 * share:.0f} % of one core: it may itself be what is slow"
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
