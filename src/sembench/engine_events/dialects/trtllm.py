"""TensorRT-LLM's audit log: one JSON object per line; the key ``event`` names its kind."""

from __future__ import annotations

import json
from typing import Any, Final

from sembench.engine_events.dialects.base import LineResult
from sembench.engine_events.tally import Tally

_IGNORED: Final = frozenset(
    {"scheduler_initialized", "worker_initialized", "kv_cache_registered", "target_allocated"}
    | {"contract_event_published"}
)
_MAX_COUNT: Final = 10**12


class TrtllmDialect:
    def begin(self, tally: Tally) -> None:
        tally.measures("donor_registrations", "semantic_hits", "load_advertisements", "materialization_events")
        tally.measures("materialized_units", "rope_corrections", "engine_boundaries")

    def read_line(self, line: str, tally: Tally) -> LineResult:
        text = line.strip()
        if not text.startswith("{"):
            return LineResult.OTHER
        try:
            record = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return LineResult.DAMAGED
        return _count(record, tally)

    def finish(self, tally: Tally) -> None:
        """Every event was counted when it was read."""


def _count(record: dict[str, Any], tally: Tally) -> LineResult:
    request_id = _request_of(record)
    match record.get("event"):
        case "lookup":
            return _lookup(record, request_id, tally)
        case "plan_dispatched":
            tally.add("load_advertisements")
            tally.note("load_advertised", request_id)
        case "materialized":
            return _materialized(record, request_id, tally)
        case "engine_blend_boundary":
            tally.add("engine_boundaries")
            tally.note("engine_boundary", request_id)
        case "donor_registered":
            tally.add("donor_registrations")
        case str(kind) if kind in _IGNORED:
            pass
        case str():
            return LineResult.OTHER
        case _:
            return LineResult.DAMAGED
    return LineResult.UNDERSTOOD


def _lookup(record: dict[str, Any], request_id: str | None, tally: Tally) -> LineResult:
    found, reason = record.get("found"), record.get("rejection_reason")
    if not isinstance(found, bool):
        return LineResult.DAMAGED
    if found:
        tally.hit(request_id)
    elif isinstance(reason, str) and reason:
        tally.reject(reason)
        tally.note("declined", request_id, reason=reason[:200])
    return LineResult.UNDERSTOOD


def _materialized(record: dict[str, Any], request_id: str | None, tally: Tally) -> LineResult:
    """``materialized`` is a number of units, or true for an unknown number. Only some versions report tokens."""
    units, tokens = record.get("materialized"), record.get("tokens")
    if tokens is not None and not _is_count(tokens):
        return LineResult.DAMAGED
    if isinstance(units, bool):
        tally.materialized(request_id, tokens, None if units else 0)
    elif _is_count(units):
        tally.materialized(request_id, tokens, units)
    else:
        return LineResult.DAMAGED
    if units and record.get("requires_rope_correction") is True:
        tally.add("rope_corrections")
    return LineResult.UNDERSTOOD


def _request_of(record: dict[str, Any]) -> str | None:
    request_id = record.get("request_id")
    if isinstance(request_id, int) and not isinstance(request_id, bool):
        return str(request_id)
    return request_id if isinstance(request_id, str) and request_id else None


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_COUNT


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
