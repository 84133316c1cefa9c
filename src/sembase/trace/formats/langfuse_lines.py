"""Langfuse exports: observations as JSON Lines or one JSON list. Generations become requests; others are left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sembase.errors import ContractError
from sembase.trace.files import iter_json_lines, json_list
from sembase.trace.formats.interface import record_format
from sembase.trace.formats.logged_request import (
    RecordBuilder,
    Reply,
    between_ms,
    first_count,
    first_text,
    pieces_of_body,
    time_ms,
)
from sembase.trace.record import TraceRecord


def records(path: Path) -> Iterator[TraceRecord]:
    """JSON Lines are read one by one, a list as a whole. Langfuse lists the newest first: lists are sorted by time."""
    builder = RecordBuilder()
    for where, line in _observations(path):
        if not isinstance(line, dict):
            raise ContractError(f"{where}: expected an observation of Langfuse")
        if line.get("type") != "GENERATION":
            continue
        started_ms, ended_ms = time_ms(line.get("startTime")), time_ms(line.get("endTime"))
        details = line.get("usageDetails")
        usage: dict[str, Any] = details if isinstance(details, dict) else {}
        cached = first_count(usage.get("input_cached_tokens"), usage.get("cache_read_input_tokens"))
        fresh = first_count(usage.get("input"), line.get("promptTokens"))
        facts = Reply(
            session=first_text(line.get("sessionId"), line.get("traceId")),
            tenant=first_text(line.get("projectId")),
            model=first_text(line.get("model")),
            prompt_tokens=None if fresh is None else fresh + (cached or 0),
            cached_tokens=cached,
            output_tokens=first_count(usage.get("output"), line.get("completionTokens")),
            ttft_ms=between_ms(started_ms, time_ms(line.get("completionStartTime"))),
            total_ms=between_ms(started_ms, ended_ms),
        )
        record = builder.record(pieces_of_body(_body(line.get("input"))), first_text(line.get("id")), started_ms, facts)
        if record is not None:
            yield record


def _body(given: object) -> dict[str, Any]:
    """Inputs are a body, a list of messages or a text; exports to storage write them as JSON text."""
    if isinstance(given, str):
        try:
            parsed = json.loads(given)
        except ValueError:
            return {"prompt": given}
        given = parsed if isinstance(parsed, dict | list) else given
    if isinstance(given, dict):
        return given
    return {"messages": given} if isinstance(given, list) else {"prompt": given}


def _observations(path: Path) -> Iterator[tuple[str, Any]]:
    listed = json_list(path)
    if listed is None:
        return iter_json_lines(path)
    listed.sort(key=lambda each: str(each[1].get("startTime")) if isinstance(each[1], dict) else "")
    return iter(listed)


FORMAT = record_format(
    "langfuse",
    "Langfuse observations (generations with their input), as JSON Lines or one JSON list",
    lambda head: b'"traceId"' in head and b'"startTime"' in head and b'"type"' in head and b'"call_type"' not in head,
    records,
    ("traceId", "startTime", "type", "input", "usageDetails"),
)
