"""OpenAI requests as JSON Lines or one list, with their responses if logged: chat, completions, the Responses API.

A request is a body (``messages``, ``prompt`` or ``input``), or an object with one under ``request``, ``body``
(batch files), ``request_body`` (or its text, as nginx logs it), ``kwargs`` or ``data`` and the reply under ``response``
or ``response_body``. Fields that are not listed here are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sembase.errors import ContractError
from sembase.trace.files import iter_json_lines, json_list
from sembase.trace.formats.interface import record_format
from sembase.trace.formats.logged_request import (
    RecordBuilder,
    Reply,
    between_ms,
    first_text,
    pieces_of_body,
    time_ms,
    usage_of,
)
from sembase.trace.record import TraceRecord

_BODIES: Final = ("request", "body", "request_body", "kwargs", "data")
_REPLIES: Final = ("response", "response_body", "completion")
_PROMPTS: Final = ("messages", "prompt", "input")


def records(path: Path) -> Iterator[TraceRecord]:
    """Lines without a prompt (embeddings, failed requests without a body) are left out."""
    builder = RecordBuilder()
    for where, line in json_list(path) or iter_json_lines(path):
        if not isinstance(line, dict):
            raise ContractError(f"{where}: expected a JSON object with a request")
        body = _inner(line, _BODIES, _PROMPTS) or line
        reply = _inner(line, _REPLIES, ("usage", "choices", "output")) or {}
        started_ms = time_ms(
            *(line.get(name) for name in ("timestamp", "ts", "time", "start_time", "startTime", "created_at"))
        )
        at_ms = started_ms if started_ms is not None else time_ms(reply.get("created"), reply.get("created_at"))
        ended_ms = time_ms(line.get("end_time"), line.get("endTime"))
        facts = Reply(
            session=first_text(line.get("session_id"), body.get("session_id"), _conversation(body), body.get("user")),
            tenant=first_text(line.get("tenant_id"), line.get("tenant")),
            model=first_text(body.get("model"), line.get("model")),
            total_ms=between_ms(started_ms, ended_ms),
            **usage_of(reply if "usage" in reply else line),
        )
        request_id = first_text(line.get("request_id"), line.get("custom_id"), reply.get("id"), line.get("id"))
        if (record := builder.record(pieces_of_body(body), request_id, at_ms, facts)) is not None:
            yield record


def _inner(line: Mapping[str, Any], names: tuple[str, ...], signs: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The named object with one of ``signs``; batch files nest the reply in ``response.body``."""
    for name in names:
        value = line.get(name)
        if isinstance(value, str) and value.startswith("{"):
            value = _parsed(value)
        if isinstance(value, Mapping):
            nested = value.get("body")
            for each in (value, nested):
                if isinstance(each, Mapping) and any(sign in each for sign in signs):
                    return each
    return None


def _conversation(body: Mapping[str, Any]) -> object:
    """Its id: the Responses API takes the id, or an object with it."""
    given = body.get("conversation")
    return given.get("id") if isinstance(given, Mapping) else given


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _looks_like(head: bytes) -> bool:
    text = head.lstrip()
    first = text if text.startswith(b"[") else text.partition(b"\n")[0]
    is_chat = b'"messages"' in first and b'"role"' in first
    is_body = b'"model"' in first and (b'"prompt"' in first or b'"input"' in first)
    return first.startswith((b"{", b"[")) and (is_chat or is_body or b'"request_body"' in first)


FORMAT = record_format(
    "openai",
    "OpenAI requests, with or without responses, one per line or in one list: chat, completions, Responses, batch",
    _looks_like,
    records,
    (*_PROMPTS, *_BODIES, *_REPLIES, "model", "instructions", "tools"),
)
