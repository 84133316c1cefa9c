"""Engine summaries, joined per request. Their counts are summed for display only; gates judge their events.

A hit of one request and a materialization of another prove nothing. Semantic KV reuse is established only by a request
with both a semantic hit and a materialization, in the same summary or in two.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard

from sembase.errors import ContractError

HIT: Final = "semantic_hit"
MATERIALIZED: Final = "materialized"
_COUNTS: Final = ("materialization_events", "materialized_tokens", "materialized_units", "semantic_hits")


@dataclass(frozen=True, slots=True)
class Load:
    """What was materialized for one engine request; None if one of its events does not report the figure."""

    events: int
    tokens: int | None = None
    units: int | None = None


@dataclass(frozen=True, slots=True)
class EngineEvidence:
    """Counts are sums over all summaries (None if no summary has them). They are not evidence of reuse.

    ``joined_requests`` have both a hit and a materialization. ``loads`` maps the engine's id to every request with a
    materialization. Both are None if no summary lists events with request ids, because then nothing can be joined.
    ``events_left_out`` is how many events the summaries dropped because their lists were full.
    """

    materialization_events: int | None
    materialized_tokens: int | None
    materialized_units: int | None
    semantic_hits: int | None
    errors: int | None
    joined_requests: tuple[str, ...] | None
    claims_reuse: bool
    loads: Mapping[str, Load] | None = None
    events_left_out: int = 0


def read_engine_summaries(paths: Sequence[Path]) -> EngineEvidence:
    summaries = [_read(path) for path in paths]
    _refuse_duplicates(paths, summaries)
    listings = [_events(summary) for summary in summaries]
    listed = any(isinstance(summary.get("events"), list) for summary in summaries)
    hits = {request for events in listings for request in _requests(events, HIT)}
    loads = _largest([_loaded(events) for events in listings])
    return EngineEvidence(
        **{name: _sum(summaries, name) for name in _COUNTS},
        errors=_sum_errors(summaries),
        joined_requests=tuple(sorted(hits & loads.keys())) if listed else None,
        claims_reuse=any(summary.get("materialized_semantic_kv_reuse") is True for summary in summaries),
        loads=loads if listed else None,
        events_left_out=sum(map(_left_out, summaries)),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(f"{path}: not JSON: {error}") from None
    if not isinstance(summary, dict) or not isinstance(summary.get("engine"), str):
        raise ContractError(f"{path}: not an engine summary (a JSON object with the key 'engine')")
    for name in _COUNTS:
        count = summary.get(name)
        if count is not None and not _is_count(count):
            raise ContractError(f"{path}: '{name}' is {count!r}, not a count")
    errors = summary.get("errors")
    if errors is not None and not isinstance(errors, list) and not _is_count(errors):
        raise ContractError(f"{path}: 'errors' is {errors!r}, neither a count nor a list of lines")
    return summary


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _events(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Events with a request id, without those that report 0 tokens."""
    events = summary.get("events")
    return [
        event
        for event in (events if isinstance(events, list) else [])
        if isinstance(event, dict) and isinstance(event.get("request_id"), str) and event.get("tokens") != 0
    ]


def _left_out(summary: Mapping[str, Any]) -> int:
    """Events dropped by ``summarize-engine-events``, as recorded in the summary's first event."""
    events = summary.get("events")
    listed = events if isinstance(events, list) else []
    counts = [event.get("events_left_out") for event in listed if isinstance(event, dict)]
    return sum(count for count in counts if type(count) is int)


def _requests(events: Sequence[Mapping[str, Any]], kind: str) -> set[str]:
    return {event["request_id"] for event in events if event.get("event") == kind}


def _loaded(events: Sequence[Mapping[str, Any]]) -> dict[str, Load]:
    """Loads by request id; the phases of a request are added up."""
    by_request: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("event") == MATERIALIZED:
            by_request[event["request_id"]].append(event)
    return {
        request: Load(len(phases), _added(phases, "tokens"), _added(phases, "units"))
        for request, phases in by_request.items()
    }


def _added(phases: Sequence[Mapping[str, Any]], name: str) -> int | None:
    values = [phase.get(name) for phase in phases]
    counts = [count for count in values if _is_count(count)]
    return sum(counts) if len(counts) == len(phases) else None


def _largest(files: Sequence[Mapping[str, Load]]) -> dict[str, Load]:
    """The largest figure over all files, not the sum: a log and an event stream may report the same load."""
    loads: dict[str, Load] = {}
    for file in files:
        for request, load in file.items():
            loads[request] = larger(loads[request], load) if request in loads else load
    return loads


def larger(one: Load, other: Load) -> Load:
    """The larger of each figure, for two reports of the same load."""
    return Load(max(one.events, other.events), _more(one.tokens, other.tokens), _more(one.units, other.units))


def _more(one: int | None, other: int | None) -> int | None:
    return max((count for count in (one, other) if count is not None), default=None)


def _refuse_duplicates(paths: Sequence[Path], summaries: Sequence[Mapping[str, Any]]) -> None:
    """The same summary must not count twice. Summaries of logs without any evidence may be equal."""
    for index, summary in enumerate(summaries):
        if summary in summaries[:index] and any(summary.get(name) for name in (*_COUNTS, "errors")):
            first = paths[summaries.index(summary)]
            raise ContractError(f"{paths[index]} holds the same summary as {first}; pass each one once")


def _sum(summaries: Sequence[Mapping[str, Any]], name: str) -> int | None:
    counts = [summary[name] for summary in summaries if summary.get(name) is not None]
    return sum(counts) if counts else None


def _sum_errors(summaries: Sequence[Mapping[str, Any]]) -> int | None:
    """``errors`` is a count or a list of lines."""
    found = [summary["errors"] for summary in summaries if summary.get("errors") is not None]
    return sum(len(errors) if isinstance(errors, list) else int(errors) for errors in found) if found else None
