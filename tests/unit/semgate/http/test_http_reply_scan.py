"""What a passing reply tells, whatever the chunks it comes in."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semgate.http.reply_scan import MAX_TAIL_BYTES, ReplyFacts, ReplyScan

ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
TOKEN = {"choices": [{"index": 0, "delta": {"content": "word"}, "finish_reason": None}]}
END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None}
USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}},
}


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def scan_of(chunks: list[bytes], *, events: bool = True) -> tuple[ReplyScan, ReplyFacts]:
    scan = ReplyScan(is_event_stream=events)
    for number, chunk in enumerate(chunks):
        scan.feed(chunk, float(number))
    return scan, scan.facts()


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "a"},
        {"reasoning_content": "a"},
        {"reasoning": "a"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"function_call": {"arguments": "{"}},
    ],
)
def test_a_part_of_the_answer_is_a_token(delta: dict[str, Any]) -> None:
    _, facts = scan_of([event(ROLE), event({"choices": [{"delta": delta}]})])
    assert facts.first_token_s == 1.0


@pytest.mark.parametrize(
    "value",
    [
        ROLE,
        USAGE,
        {"choices": [{"delta": {"content": None}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "x", "function": {"arguments": ""}}]}}]},
        {"choices": [{"text": ""}]},
        {"choices": "no list"},
        {"error": {"message": "content"}},
        [1],
        b"[DONE]",
        b"{broken",
    ],
)
def test_what_gives_the_client_nothing_is_no_token(value: Any) -> None:
    scan, facts = scan_of([event(value), b": keep-alive\n\n"])
    assert facts.first_token_s is None
    assert scan.first_token_s is None


def test_completions_and_native_streams_have_tokens_too() -> None:
    assert scan_of([event({"choices": [{"text": "a"}]})])[1].first_token_s == 0.0
    assert (
        scan_of([event({"text": "a", "meta_info": {"prompt_tokens": 2, "completion_tokens": 1}})])[1].prompt_tokens == 2
    )


def test_half_an_event_is_no_token_yet() -> None:
    line = event(TOKEN)
    assert scan_of([line[:-2], line[-2:]])[1].first_token_s == 1.0
    assert scan_of([line[:-2]])[1].first_token_s is None


@given(st.lists(st.integers(1, 400), max_size=30), st.integers(0, 40))
def test_facts_do_not_depend_on_the_cuts(cuts: list[int], tokens: int) -> None:
    whole = event(ROLE) + event(TOKEN) * tokens + event(END) + event(USAGE) + event(b"[DONE]")
    edges = sorted({cut * len(whole) // 401 for cut in cuts} | {0, len(whole)})
    chunks = [whole[a:b] for a, b in itertools.pairwise(edges)]
    scan, facts = scan_of(chunks)
    assert (facts.prompt_tokens, facts.cached_tokens, facts.output_tokens) == (9, 3, 4)
    assert (facts.finish, facts.is_done, facts.has_error) == ("stop", True, False)
    assert scan.at_event_border
    # The oracle: the chunk in which the first token's line is complete.
    token_ends = len(event(ROLE) + event(TOKEN)) - 1
    if not tokens:  # an answer that consists of its end alone: then the end token is the first
        token_ends = len(event(ROLE) + event(END)) - 1
    assert facts.first_token_s == next(i for i, b in enumerate(edges[1:]) if b >= token_ends)


def test_events_are_counted_at_chunk_borders() -> None:
    _, facts = scan_of([event(ROLE) + event(TOKEN), event(TOKEN), event(b"[DONE]")])
    assert facts.events == 4


def test_usage_of_the_last_event_counts() -> None:
    first = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    _, facts = scan_of([event(first), event(USAGE), event({"choices": [], "usage": None})])
    assert facts.output_tokens == 4


def test_text_that_quotes_usage_is_text() -> None:
    text = 'he wrote "usage": {"prompt_tokens": 777}, "error": {"a": 1}'
    scan, facts = scan_of([event(USAGE), event({"choices": [{"delta": {"content": text}}]})])
    assert facts.prompt_tokens == 9
    assert not scan.ended_in_error


def test_an_error_in_the_stream_is_seen() -> None:
    assert scan_of([event(TOKEN), event({"error": {"message": "out of memory"}})])[0].ended_in_error


def test_a_document_has_usage_and_no_first_token() -> None:
    body = json.dumps(
        {"choices": [{"message": {"content": "x" * 50_000}, "finish_reason": "length"}], **USAGE}
    ).encode()
    _, facts = scan_of([body[:100], body[100:]], events=False)
    assert (facts.first_token_s, facts.prompt_tokens, facts.events) == (None, 9, 0)


@pytest.mark.parametrize("usage", [{"prompt_tokens": -1}, {"prompt_tokens": "9"}, {"prompt_tokens": True}, [], 5])
def test_usage_of_the_wrong_shape_is_unknown(usage: Any) -> None:
    assert scan_of([event({"usage": usage})])[1].prompt_tokens is None


def test_memory_is_bounded_however_long_the_stream() -> None:
    scan = ReplyScan(is_event_stream=True)
    for _ in range(2_000):
        scan.feed(b"x" * 1000, 0.0)  # never a line end
    assert scan._held_bytes <= MAX_TAIL_BYTES
    assert sum(map(len, scan._tail)) == scan._held_bytes
    assert scan._scanner._open_bytes <= 1024 * 1024


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_no_bytes_raise(chunks: list[bytes]) -> None:
    scan_of([b"data: " + chunk + b"\n" for chunk in chunks])
    scan_of([b'data: {"usage": {' + chunk for chunk in chunks])
