"""One large body does not stop the others: what is looked at is bounded, and a long look happens in a thread."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.segment import Message, Segment, pieces
from sembase.segment.segments import iter_segments
from semgate.http.held_body import BodyBudget, HeldBody
from semgate.http.request_body import MAX_VALUES, Asked, parsed_size, read_request
from semgate.prompt.contents import (
    MAX_CONTENT_BYTES,
    MAX_CONTENTS,
    MAX_ESTIMATED_TOKENS,
    MEDIA_TOKENS,
    contents_of,
    estimate_tokens,
)
from semgate.prompt.pieces import prompt_pieces
from semgate.router.request.inspection import (
    INLINE_BYTES,
    RequestInspector,
    run_off_loop,
    with_cache_salt,
)
from semgate.router.request.members import STRICT_BYTES

PARSED_BASE = 512  # of any value, however small


def chat_of(content: object) -> tuple[Asked, bytes]:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()
    return read_request("/v1/chat/completions", (), body, "t"), body


def test_only_as_many_pieces_are_cut_as_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    segmented: list[int] = []

    def count(message: Message) -> Iterator[Segment]:
        segmented.append(len(message.content))
        return iter_segments(message)

    monkeypatch.setattr(pieces, "iter_segments", count)
    asked, body = chat_of("a\n\n" * 800_000)
    assert len(contents_of(asked, body)) == MAX_CONTENTS
    assert sum(segmented) < 4 * (MAX_CONTENTS + 2), "of 2,400,000 characters"


def test_only_so_many_bytes_are_looked_at() -> None:
    asked, body = chat_of(["x" * MAX_CONTENT_BYTES] * 8)
    assert len(contents_of(asked, body)) == 1


@given(
    st.lists(st.sampled_from(["a", "b c", "CONTEXT: d", "\n", "\n\n", " ", "\n \n", "\nUSER: e"]), max_size=40),
    st.integers(1, 6),
    st.booleans(),
)
def test_a_bounded_look_sees_the_same_pieces(parts: list[str], most: int, as_prompt: bool) -> None:
    text = "".join(parts)
    given_body = {"prompt": text} if as_prompt else {"messages": [{"role": "system", "content": text}]}
    body = json.dumps(given_body).encode()
    asked = read_request("/v1/completions", (), body)
    whole = [(each.label, each.content) for each in prompt_pieces(asked, body)]
    bounded = [(each.label, each.content) for each in prompt_pieces(asked, body, most)]
    assert bounded[:most] == whole[:most]


def test_a_body_of_too_many_values_is_passed_on_unread() -> None:
    raw = b'{"model":"m","prompt":[' + b",".join([b"1"] * (MAX_VALUES + 2)) + b"]}"
    assert read_request("/v1/completions", (), raw).prompt_tokens is None
    assert len(read_request("/v1/completions", (), raw[: 2 * MAX_VALUES] + b"1]}").prompt_tokens or ()) > 1_000_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**40) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5),
    max_leaves=30,
)


def size_of(value: object) -> int:
    """Of all objects of a parsed value, each counted where it occurs."""
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        size += sum(size_of(key) + size_of(each) for key, each in value.items())
    elif isinstance(value, list):
        size += sum(map(size_of, value))
    return size


@given(JSON, st.booleans())
def test_the_estimate_bounds_the_parsed_form(value: object, ascii_only: bool) -> None:
    body = json.dumps({"messages": value}, ensure_ascii=ascii_only, separators=(",", ":")).encode(
        errors="surrogatepass"
    )
    assert parsed_size(body) + PARSED_BASE >= size_of(json.loads(body))


def test_bodies_of_many_small_objects_are_not_parsed_beyond_the_budget() -> None:
    body = b'{"model":"m","messages":[' + b",".join([b'{"a":[]}'] * 520_000) + b"]}"
    budget = BodyBudget(32 << 20)
    assert parsed_size(body) > budget.max_parsed_bytes
    inspector = RequestInspector(b"k" * 32, trust_tenant_header=False, inject_cache_salt=False)

    async def work() -> None:
        held = HeldBody(budget, "t")
        held.count(len(body))
        held.data = body
        asked, sent = await inspector.inspect_request("/v1/chat/completions", (), held, "t")
        assert (asked.messages, sent is body) == (None, True)
        held.drop()
        assert (budget.held_bytes, budget.parsed_bytes) == (0, 0)

    asyncio.run(work())


def test_the_parsed_form_counts_until_the_request_is_placed() -> None:
    budget = BodyBudget(1 << 20, 4 << 20)
    first, second = HeldBody(budget, "t"), HeldBody(budget, "t")
    assert first.count_parsed(800_000)
    assert not second.count_parsed(800_000), "a quarter of the budget is for parsed forms"
    first.drop_parsed()
    assert second.count_parsed(800_000)
    second.drop()
    assert (budget.held_bytes, budget.parsed_bytes) == (0, 0)


@given(st.lists(st.one_of(st.integers(-2, 2**33), st.booleans(), st.floats(allow_nan=False)), max_size=5))
def test_token_ids_are_whole_numbers_of_32_bits(values: list[object]) -> None:
    found = read_request("/v1/completions", (), json.dumps({"prompt": values}).encode()).prompt_tokens
    are_ids = bool(values) and all(type(value) is int and 0 <= value < 2**32 for value in values)
    assert found == (tuple(values) if are_ids else None)


def test_a_large_body_is_salted_without_being_read_into_objects() -> None:
    raw = b'{"prompt":[' + b",".join([b"1"] * STRICT_BYTES) + b'],"cache_salt":"theirs"}\n'
    salted = with_cache_salt(raw, "ours")
    assert salted is not None
    assert json.loads(salted)["cache_salt"] == "ours"
    assert with_cache_salt(raw[:-3], "ours") is None
    assert with_cache_salt(b"[" + raw + b"]", "ours") is None


def test_a_large_body_is_worked_on_run_off_loop() -> None:
    async def work() -> None:
        here = threading.get_ident()
        assert await run_off_loop(INLINE_BYTES, threading.get_ident) == here
        assert await run_off_loop(INLINE_BYTES + 1, threading.get_ident) != here

    asyncio.run(work())


def test_a_picture_has_a_fixed_size() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000_000}}
    asked, body = chat_of([{"type": "text", "text": "What is this?" * 4}, picture])
    assert estimate_tokens(asked) == 13 + MEDIA_TOKENS
    assert sum(each.tokens for each in contents_of(asked, body)) == 13 + MEDIA_TOKENS
    responses = read_request("/v1/responses", (), json.dumps({"input": [picture]}).encode())
    assert estimate_tokens(responses) == MEDIA_TOKENS
    unread = read_request("/v1/responses", (), json.dumps({"data": [picture]}).encode())
    assert estimate_tokens(unread) == MAX_ESTIMATED_TOKENS
