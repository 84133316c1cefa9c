"""OpenTelemetry GenAI spans as JSON Lines: the SDK's own JSON (one span per line) or OTLP (``resourceSpans`` per line).

Messages are in ``gen_ai.input.messages`` and ``gen_ai.system_instructions``; instrumentations capture them on request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sembase.errors import ContractError
from sembase.trace.files import iter_json_lines
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
    """Spans of other operations (tools, HTTP) are left out; a file without any captured message is an error."""
    builder = RecordBuilder()
    spans = captured = 0
    for where, line in iter_json_lines(path):
        if not isinstance(line, dict):
            raise ContractError(f"{where}: expected a span or resourceSpans")
        for span, attributes in _spans(line):
            if "gen_ai.request.model" not in attributes and "gen_ai.input.messages" not in attributes:
                continue
            spans += 1
            if (record := _record(builder, span, attributes, where)) is not None:
                captured += 1
                yield record
    if spans and not captured:
        raise ContractError(
            f"{path.name}: {spans} GenAI spans without messages; set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
        )


def _record(
    builder: RecordBuilder, span: Mapping[str, Any], attributes: Mapping[str, Any], where: str
) -> TraceRecord | None:
    system = _parsed(attributes.get("gen_ai.system_instructions"), where)
    messages = _parsed(attributes.get("gen_ai.input.messages"), where)
    body = {
        "messages": [
            *([{"role": "system", "content": [_part(each) for each in system]}] if system else []),
            *(_message(each) for each in messages),
        ],
        "tools": _parsed(attributes.get("gen_ai.tool.definitions"), where),
    }
    started_ms = time_ms(span.get("start_time"), span.get("startTimeUnixNano"))
    ended_ms = time_ms(span.get("end_time"), span.get("endTimeUnixNano"))
    given = span.get("context")
    context: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    facts = Reply(
        session=first_text(attributes.get("gen_ai.conversation.id"), attributes.get("session.id")),
        model=first_text(attributes.get("gen_ai.request.model")),
        prompt_tokens=first_count(attributes.get("gen_ai.usage.input_tokens")),
        cached_tokens=first_count(attributes.get("gen_ai.usage.cache_read.input_tokens")),
        output_tokens=first_count(attributes.get("gen_ai.usage.output_tokens")),
        total_ms=between_ms(started_ms, ended_ms),
    )
    return builder.record(
        pieces_of_body(body), first_text(span.get("spanId"), context.get("span_id")), started_ms, facts
    )


def _message(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    parts = value.get("parts")
    return {"role": value.get("role"), "content": [_part(part) for part in parts] if isinstance(parts, list) else None}


def _part(value: object) -> object:
    """Text parts as the segmenter reads them; tool calls and their replies as their JSON."""
    if not isinstance(value, Mapping):
        return value
    content = first_text(value.get("content"), value.get("response"), value.get("result"))
    return {"type": "text", "text": content} if content is not None else dict(value)


def _spans(line: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    if "resourceSpans" not in line:
        attributes = line.get("attributes")
        yield line, attributes if isinstance(attributes, Mapping) else {}
        return
    for resource in line["resourceSpans"]:
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                yield span, {each["key"]: _value(each.get("value", {})) for each in span.get("attributes", ())}


def _value(given: Mapping[str, Any]) -> Any:
    """OTLP writes a 64-bit number as text."""
    if "intValue" in given:
        return int(given["intValue"])
    return next((given[name] for name in ("stringValue", "doubleValue", "boolValue") if name in given), None)


def _parsed(value: object, where: str) -> list[Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ContractError(
                f"{where}: the messages of a span are not JSON; were they cut by a length limit?"
            ) from None
    return value if isinstance(value, list) else []


FORMAT = record_format(
    "otel_genai",
    "OpenTelemetry GenAI spans with captured messages, as the SDK's JSON or OTLP JSON, one object per line",
    lambda head: head.lstrip().startswith(b"{") and (b'"resourceSpans"' in head or b'"gen_ai.' in head),
    records,
    ("resourceSpans", "attributes", "start_time", "end_time", "context"),
)
