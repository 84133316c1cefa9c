"""LiteLLM's standard logging payload, one per line, as its callbacks and storage loggers write it."""

from __future__ import annotations

from collections.abc import Iterator
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
    usage_of,
)
from sembase.trace.record import TraceRecord


def records(path: Path) -> Iterator[TraceRecord]:
    """Failed requests are read too: they were sent. A payload without messages (redacted) is an error."""
    builder = RecordBuilder()
    for where, line in iter_json_lines(path):
        if not isinstance(line, dict) or "startTime" not in line:
            raise ContractError(f"{where}: expected a standard logging payload of LiteLLM")
        metadata = line.get("metadata")
        about: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
        messages = line.get("messages")
        given = {"messages": messages} if isinstance(messages, list) else {"prompt": messages}
        parameters = line.get("model_parameters")
        tools = parameters.get("tools") if isinstance(parameters, dict) else None
        usage = usage_of({"usage": about.get("usage_object")})
        usage["prompt_tokens"] = first_count(usage["prompt_tokens"], line.get("prompt_tokens"))
        usage["output_tokens"] = first_count(usage["output_tokens"], line.get("completion_tokens"))
        started_ms, ended_ms = time_ms(line["startTime"]), time_ms(line.get("endTime"))
        is_stream = line.get("stream") is True
        facts = Reply(
            session=first_text(line.get("session_id"), line.get("end_user")),
            tenant=first_text(about.get("user_api_key_team_id"), about.get("user_api_key_hash")),
            model=first_text(line.get("model_group"), line.get("model")),
            ttft_ms=between_ms(started_ms, time_ms(line.get("completionStartTime"))) if is_stream else None,
            total_ms=between_ms(started_ms, ended_ms),
            **usage,
        )
        call_id = first_text(line.get("litellm_call_id"), line.get("id"))
        record = builder.record(pieces_of_body({**given, "tools": tools}), call_id, started_ms, facts)
        if record is None:
            raise ContractError(f"{where}: has no messages; LiteLLM leaves them out with turn_off_message_logging")
        yield record


FORMAT = record_format(
    "litellm",
    "LiteLLM standard logging payloads, one JSON object per line",
    lambda head: head.lstrip().startswith(b"{") and b'"call_type"' in head and b'"startTime"' in head,
    records,
    ("call_type", "startTime", "endTime", "messages", "model_parameters", "litellm_call_id"),
)
