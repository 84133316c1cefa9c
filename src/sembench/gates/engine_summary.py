"""Engine summaries, summed over files and joined per request.

A hit somewhere and a materialization somewhere else prove nothing. Reuse of semantic KV is established only by a
request of which some summary reports a semantic hit and some summary, the same or another, a materialization.
"""

from __future__ import annotations

import json
from collections import defaultdict
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

    ``joined_requests`` have both a hit and a materialization. ``loaded_tokens`` holds every request with a
    materialization, by the engine's id: how many tokens, None if its events do not say. Both are None when no summary
    lists its events with request ids: then nothing can be joined. ``events_left_out`` did not fit into the lists.
    """

    materialization_events: int | None
    materialized_tokens: int | None
    materialized_units: int | None
    semantic_hits: int | None
    errors: int | None
    joined_requests: tuple[str, ...] | None
    claims_reuse: bool
    loaded_tokens: Mapping[str, int | None] | None = None
    events_left_out: int = 0


def read_engine_summaries(paths: Sequence[Path]) -> EngineEvidence:
    summaries = [_read(path) for path in paths]
    listings = [_events(summary) for summary in summaries]
    listed = any(isinstance(summary.get("events"), list) for summary in summaries)
    hits = {request for events in listings for request in _requests(events, HIT)}
    loads = _most([_loaded(events) for events in listings])
    return EngineEvidence(
        **{name: _sum(summaries, name) for name in _COUNTS},
        errors=_sum_errors(summaries),
        joined_requests=tuple(sorted(hits & loads.keys())) if listed else None,
        claims_reuse=any(summary.get("materialized_semantic_kv_reuse") is True for summary in summaries),
        loaded_tokens=loads if listed else None,
        events_left_out=sum(map(_left_out, summaries)),
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
        if count is not None and not _is_count(count):
            raise ContractError(f"{path}: '{name}' is {count!r}, not a count")
    errors = summary.get("errors")
    if errors is not None and not isinstance(errors, list) and not _is_count(errors):
        raise ContractError(f"{path}: 'errors' is {errors!r}, neither a count nor a list of lines")
    return summary


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _events(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those that name a request; one that says it moved no tokens does not count."""
    events = summary.get("events")
    return [
        event
        for event in (events if isinstance(events, list) else [])
        if isinstance(event, dict) and isinstance(event.get("request_id"), str) and event.get("tokens") != 0
    ]


def _left_out(summary: Mapping[str, Any]) -> int:
    """A summary of ours says in its first event what its list had no room for."""
    events = summary.get("events")
    listed = events if isinstance(events, list) else []
    counts = [event.get("events_left_out") for event in listed if isinstance(event, dict)]
    return sum(count for count in counts if type(count) is int)


def _requests(events: Sequence[Mapping[str, Any]], kind: str) -> set[str]:
    return {event["request_id"] for event in events if event.get("event") == kind}


def _loaded(events: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """Tokens by request, a request's phases added up; None where an event does not say."""
    told: dict[str, list[int | None]] = defaultdict(list)
    for event in events:
        if event.get("event") == MATERIALIZED:
            tokens = event.get("tokens")
            told[event["request_id"]].append(tokens if _is_count(tokens) else None)
    return {
        request: None if None in counts else sum(count for count in counts if count is not None)
        for request, counts in told.items()
    }


def _most(files: Sequence[Mapping[str, int | None]]) -> dict[str, int | None]:
    """Over files the largest figure, not the sum: a log and an event stream may tell of the same load."""
    loads: dict[str, int | None] = {}
    for file in files:
        for request, tokens in file.items():
            known = loads.get(request)
            loads[request] = tokens if known is None else max(known, tokens or 0)
    return loads


def _sum(summaries: Sequence[Mapping[str, Any]], name: str) -> int | None:
    counts = [summary[name] for summary in summaries if summary.get(name) is not None]
    return sum(counts) if counts else None


def _sum_errors(summaries: Sequence[Mapping[str, Any]]) -> int | None:
    """``errors`` is a count or a list of lines."""
    found = [summary["errors"] for summary in summaries if summary.get("errors") is not None]
    return sum(len(errors) if isinstance(errors, list) else int(errors) for errors in found) if found else None
