"""Event streams as they arrive, whatever the cuts between reads; and decoding that nothing a server sends can break."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.http.event_stream import EventScanner
from sembench.http.client import decode
from sembench.http.request import PATHS, Endpoint
from sembench.scoring import Task, mark

ENDPOINTS: tuple[Endpoint, ...] = tuple(PATHS)
TEXTS = st.text(max_size=12)


def chat_event(content: str | None, key: str = "content") -> str:
    return json.dumps({"choices": [{"index": 0, "delta": {key: content}, "logprobs": {"content": []}}]})


def as_stream(events: list[str], line_end: str = "\n") -> bytes:
    return "".join(f"data: {event}{line_end * 2}" for event in [*events, "[DONE]"]).encode()


@given(contents=st.lists(TEXTS, max_size=8), cuts=st.lists(st.integers(0, 400), max_size=6), crlf=st.booleans())
def test_cuts_between_reads_change_nothing(contents: list[str], cuts: list[int], crlf: bool) -> None:
    """One arrival per event with content, at the read that completed its line, and the whole text in order."""
    data = as_stream([chat_event(content) for content in contents], "\r\n" if crlf else "\n")
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    stream = EventScanner(keep="all")
    ends = []
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        stream.feed(data[start:end], float(number))
        ends.append(end)
    line_ends, at = [], 0
    for content in contents:
        at = data.index(b"\n", at + 1)
        if content:
            line_ends.append(at)
        at = data.index(b"\n", at + 1)
    assert stream.done
    assert stream.arrivals == [float(next(n for n, end in enumerate(ends) if end > at)) for at in line_ends]
    assert decode("chat", stream.lines).text == "".join(contents)


@given(text=TEXTS)
def test_text_that_looks_like_an_event_is_no_second_token(text: str) -> None:
    content = text + '"content":"x" "usage":{"completion_tokens":7} data: [DONE]'
    stream = EventScanner(keep="final")
    stream.feed(as_stream([chat_event(content)])[:-14], 1.0)
    assert stream.arrivals == [1.0]
    assert not stream.done
    assert decode("chat", stream.lines).completion_tokens is None


@pytest.mark.parametrize("key", ["content", "reasoning_content", "reasoning"])
def test_reasoning_is_tokens_too(key: str) -> None:
    stream = EventScanner(keep="all")
    stream.feed(as_stream([chat_event("", key), chat_event(None, key), chat_event("thought", key)]), 1.0)
    assert stream.arrivals == [1.0]
    assert decode("chat", stream.lines).text == "thought"


def test_memory_of_a_load_does_not_grow_with_the_answer() -> None:
    stream = EventScanner(keep="final")
    for count in range(1, 500):
        event = {"text": "x" * count, "meta_info": {"completion_tokens": count, "prompt_tokens": 3}}
        stream.feed(f"data: {json.dumps(event)}\n\n".encode(), float(count))
    assert len(stream.arrivals) == 499
    assert len(stream.lines) == 1
    assert decode("sglang_generate", stream.lines).completion_tokens == 499


def test_a_last_line_without_its_end_counts() -> None:
    stream = EventScanner(keep="all")
    stream.feed(b"data: " + chat_event("x").encode() + b"\n\ndata: [DONE]", 1.0)
    assert not stream.done
    stream.end(2.0)
    assert stream.done


KEYS = """choices delta content text usage prompt_tokens completion_tokens prompt_tokens_details cached_tokens logprobs
top_logprobs token logprob tokens token_logprobs meta_info output_token_logprobs output_top_logprobs kv_transfer_params
semblend error message object reasoning"""
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=4),
    max_leaves=20,
)


@given(events=st.lists(json_values, max_size=4), endpoint=st.sampled_from(ENDPOINTS))
def test_no_event_breaks_the_decoder(events: list[Any], endpoint: Endpoint) -> None:
    decoded = decode(endpoint, [json.dumps(event).encode() for event in events])
    for count in (decoded.prompt_tokens, decoded.completion_tokens, decoded.cached_tokens):
        assert count is None or count >= 0
    assert all(isinstance(entry.logprob, float) for entry in decoded.logprobs)
    assert isinstance(decoded.text, str)


@given(payload=st.binary(max_size=40), endpoint=st.sampled_from(ENDPOINTS))
def test_no_bytes_break_stream_or_decoder(payload: bytes, endpoint: Endpoint) -> None:
    stream = EventScanner(keep="all")
    stream.feed(b"data: " + payload, 1.0)
    stream.end(1.0)
    decode(endpoint, stream.lines)


def test_an_error_in_the_stream_is_reported() -> None:
    for event in ({"error": {"message": "boom"}}, {"object": "error", "message": "boom"}, {"error": "boom"}):
        assert decode("chat", [json.dumps(event).encode()]).fault == "boom"
    assert decode("chat", [b'{"error": null, "choices": []}']).fault == ""


@pytest.mark.parametrize(
    ("endpoint", "first", "last"),
    [
        ("chat", {"delta": {"role": "assistant"}}, {"delta": {}, "finish_reason": "stop"}),
        ("completions", {"text": ""}, {"text": "", "finish_reason": "stop"}),
    ],
)
def test_an_answer_that_is_only_its_end_has_a_first_token(endpoint: Endpoint, first: Any, last: Any) -> None:
    """The model's first token was the end token: an empty text, and yet a time to it. The role alone is none."""
    stream = EventScanner(keep="all")
    stream.feed(f"data: {json.dumps({'choices': [{**first, 'finish_reason': None}]})}\n\n".encode(), 1.0)
    assert stream.arrivals == []
    stream.feed(f"data: {json.dumps({'choices': [last]})}\n\n".encode(), 2.0)
    assert stream.arrivals == [2.0]


def tool_event(index: int, **function: str) -> bytes:
    return json.dumps({"choices": [{"delta": {"tool_calls": [{"index": index, "function": function}]}}]}).encode()


def test_calls_sent_apart_from_the_text_are_joined_and_follow_it() -> None:
    pieces = [
        tool_event(0, name="book", arguments=""),
        tool_event(0, arguments='{"n"'),
        tool_event(0, arguments=": 2}"),
    ]
    one = decode("chat", [chat_event("Booking.").encode(), *pieces]).text
    assert one == 'Booking.\n{"name": "book", "arguments": "{\\"n\\": 2}"}'
    two = decode("chat", [*pieces, tool_event(1, name="pay", arguments="{}")]).text
    assert [call["name"] for call in json.loads(two)] == ["book", "pay"]
    read = mark(two, Task(score="tool_call")).read
    assert read == '{"arguments":{"n":2},"name":"book"}\n{"arguments":{},"name":"pay"}'
