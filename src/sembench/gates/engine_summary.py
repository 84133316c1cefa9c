"""Engine summaries, summed over files and joined per request.

A hit somewhere and a materialization somewhere else prove nothing. Reuse of semantic KV is established only by a
request of which some summary reports a semantic hit and some summary, the same or another, a materialization.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from semblend.errors import ContractError

HIT: Final = "semantic_hit"
MATERIALIZED: Final = "materialized"
_COUNTS: Final = ("materialization_events", "materialized_tokens", "materialized_units", "semantic_hits")


@dataclass(frozen=True, slots=True)
class EngineEvidence:
    """Sums over all summaries; None where no summary counted.

    ``joined_requests`` have both a hit and a materialization. None when no summary lists its events with request ids:
    then nothing can be joined.
    """

    materialization_events: int | None
    materialized_tokens: int | None
    materialized_units: int | None
    semantic_hits: int | None
    errors: int | None
    joined_requests: tuple[str, ...] | None
    claims_reuse: bool


def read_engine_summaries(paths: Sequence[Path]) -> EngineEvidence:
    summaries = [_read(path) for path in paths]
    events = [event for summary in summaries for event in _events(summary)]
    listed = any(isinstance(summary.get("events"), list) for summary in summaries)
    hits = _requests(events, HIT)
    loads = _requests(events, MATERIALIZED)
    return EngineEvidence(
        **{name: _sum(summaries, name) for name in _COUNTS},
        errors=_sum_errors(summaries),
        joined_requests=tuple(sorted(hits & loads)) if listed else None,
        claims_reuse=any(summary.get("materialized_semantic_kv_reuse") is True for summary in summaries),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(f"{path}: not JSON: {error}") from None
    if not isinstance(summary, dict) or not isinstance(summary.get("engine"), str):
        raise ContractError(f"{path}: not an engine summary (a JSON object that names its engine)")
    for name in _COUNTS:
        count = summary.get(name)
        if count is not None and (type(count) is not int or count < 0):
            raise ContractError(f"{path}: '{name}' is {count!r}, not a count")
    return summary


def _events(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    events = summary.get("events")
    return [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []


def _requests(events: Sequence[Mapping[str, Any]], kind: str) -> set[str]:
    """Requests with an event of this kind; one that says it moved no tokens does not count."""
    return {
        event["request_id"]
        for event in events
        if event.get("event") == kind and isinstance(event.get("request_id"), str) and event.get("tokens") != 0
    }


def _sum(summaries: Sequence[Mapping[str, Any]], name: str) -> int | None:
    counts = [summary[name] for summary in summaries if summary.get(name) is not None]
    return sum(counts) if counts else None


def _sum_errors(summaries: Sequence[Mapping[str, Any]]) -> int | None:
    """``errors`` is a count or a list of lines."""
    found = [summary["errors"] for summary in summaries if summary.get("errors") is not None]
    return sum(len(errors) if isinstance(errors, list) else int(errors) for errors in found) if found else None
