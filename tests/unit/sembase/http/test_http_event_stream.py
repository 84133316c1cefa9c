"""What counts as a token in a streamed answer, in every dialect, and what does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sembase.http.event_stream import EventScanner


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{"delta": {"refusal": "no"}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}}]},
        {"choices": [{"delta": {"function_call": {"arguments": "{"}}}]},
        {"choices": [{"delta": {"audio": {"data": "AAAA"}}}]},
        {"choices": [{"delta": {"content": ""}, "token_ids": [7]}]},
        {"choices": [{"text": "a"}]},
        {"type": "response.output_text.delta", "delta": "a"},
        {"text": "a"},
        {"output_ids": [1]},
        {"text": "", "meta_info": {"completion_tokens": 1}},
    ],
)
def test_every_part_of_an_answer_is_a_token(event: Any) -> None:
    stream = EventScanner()
    stream.feed(f"data: {json.dumps(event)}\n\n".encode(), 1.0)
    assert stream.arrivals == [1.0]


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
        {"choices": [{"delta": {"content": None}, "token_ids": []}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "x", "function": {"arguments": ""}}]}}]},
        {"choices": [], "prompt_token_ids": [1, 2, 3]},
        {"choices": [], "usage": {"completion_tokens": 4}},
        {"type": "response.created", "response": {"reasoning": {"effort": None}, "text": {"format": {"type": "text"}}}},
        {"error": {"message": "content"}},
        {"text": "the whole text again", "meta_info": {"completion_tokens": 0}},
    ],
)
def test_what_brings_nothing_is_not_a_token(event: Any) -> None:
    stream = EventScanner()
    stream.feed(f"data: {json.dumps(event)}\n\n: keep-alive\n\n".encode(), 1.0)
    assert stream.arrivals == []


def test_a_line_without_an_end_is_dropped_at_its_limit() -> None:
    stream = EventScanner(max_line_bytes=1000)
    for _ in range(50):
        stream.feed(b"x" * 100, 0.0)
    assert stream.overlong
    assert stream._open_bytes <= 1000
