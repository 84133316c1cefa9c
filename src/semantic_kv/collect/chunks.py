"""The events of a finished answer -> the counts and the model name the server gave, or why the answer is not usable."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sembase.http.event_stream import MAX_LINE_BYTES, EventScanner


@dataclass(frozen=True, slots=True)
class Answer:
    """``None``: the server did not report it."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    model_name: str | None = None
    fault: str | None = None


def read_answer(events: EventScanner) -> Answer:
    """Never raises, whatever the server sent. ``events`` must have kept all its lines."""
    fault = f"an event longer than {MAX_LINE_BYTES >> 20} MiB" if events.overlong else None
    model_name: str | None = None
    usage: dict[str, Any] = {}
    for line in events.lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            fault = "an event is not JSON"
            continue
        if not isinstance(event, dict):
            continue
        if event.get("error"):
            fault = "the server ended the stream with an error"
            continue
        if isinstance(event.get("model"), str):
            model_name = event["model"]
        if isinstance(event.get("usage"), dict):
            usage = event["usage"]
    details = usage.get("prompt_tokens_details")
    return Answer(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        output_tokens=_count(usage.get("completion_tokens")),
        model_name=model_name,
        fault=fault,
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
