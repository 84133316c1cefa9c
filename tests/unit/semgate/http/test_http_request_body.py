"""The bounded read of a body and the lenient look into it."""

from __future__ import annotations

import json
from collections.abc import Coroutine, MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semgate.http.faults import RequestRefused
from semgate.http.request_body import Asked, ClientGone, Receive, read_body, read_request

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("model", "stream", "messages", "prompt", "user", "cache_salt", "lora_path", "n")


def messages_of(*messages: dict[str, Any]) -> Receive:
    left = list(messages)

    async def receive() -> MutableMapping[str, Any]:
        return left.pop(0)

    return receive


def finished(coroutine: Coroutine[Any, Any, bytes]) -> bytes:
    """Without a loop: what never waits is finished at once."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        value: bytes = ended.value
        return value
    raise AssertionError("it waits")


def piece(body: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def look(**given: Any) -> Asked:
    return read_request("/v1/chat/completions", (), json.dumps(given).encode())


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=6), st.integers(0, 60))
def test_a_body_is_whole_or_refused(pieces: list[bytes], limit: int) -> None:
    messages = [piece(each, number < len(pieces) - 1) for number, each in enumerate(pieces)]
    whole = b"".join(pieces)
    reading = read_body(messages_of(*messages), (), limit)
    if len(whole) > limit:
        with pytest.raises(RequestRefused, match="too_large"):
            finished(reading)
    else:
        assert finished(reading) == whole


@pytest.mark.parametrize("announced", [b"101", b"99999999999999999999999", b"-1", b"x"])
def test_an_announced_excess_is_refused_before_a_byte_is_read(announced: bytes) -> None:
    with pytest.raises(RequestRefused, match="too_large"):
        finished(read_body(messages_of(), ((b"content-length", announced),), 100))


def test_a_client_that_leaves_in_its_body_is_gone() -> None:
    with pytest.raises(ClientGone):
        finished(read_body(messages_of(piece(b"a", True), {"type": "http.disconnect"}), (), 100))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(body: bytes) -> None:
    assert read_request("/x", (), body).body_bytes == len(body)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_value_in_any_field_is_read_without_an_error(given: dict[str, Any]) -> None:
    asked = read_request("/x", (), json.dumps(given).encode())
    assert asked.model is None or asked.model == given["model"]
    assert asked.messages is None or isinstance(given["messages"], list)
    assert asked.stream == (given.get("stream") is True)


def test_what_is_asked_is_seen() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    asked = look(
        model="m",
        stream=True,
        messages=[{"role": "user", "content": parts}],
        user="u",
        cache_salt="s",
        lora_path="l",
        n=3,
        tools=[{"type": "function"}],
    )
    assert (asked.model, asked.stream, asked.user, asked.cache_salt, asked.lora, asked.n) == (
        "m",
        True,
        "u",
        "s",
        "l",
        3,
    )
    assert asked.media_parts == 1
    assert asked.messages == [{"role": "user", "content": parts}]


@pytest.mark.parametrize(
    ("prompt", "text", "tokens", "count"),
    [
        ("a", "a", None, 1),
        (["a", "b"], "a", None, 2),
        ([1, 2], None, (1, 2), 1),
        ([[1, 2], [3]], None, (1, 2), 2),
        ([True], None, None, 1),
        ([-1], None, None, 1),
        ([2**32], None, None, 1),
        ([], None, None, 1),
        ({"a": 1}, None, None, 1),
    ],
)
def test_prompts_of_every_shape(prompt: Any, text: str | None, tokens: tuple[int, ...] | None, count: int) -> None:
    asked = look(prompt=prompt)
    assert (asked.prompt_text, asked.prompt_tokens, asked.prompts) == (text, tokens, count)


def test_session_comes_from_its_header_and_tenant_from_the_caller() -> None:
    headers = ((b"x-session-id", b"s1"), (b"x-tenant-id", b"mallory"))
    asked = read_request("/x", headers, b"{}", "alice")
    assert (asked.session, asked.tenant) == ("s1", "alice")


@pytest.mark.parametrize("body", [b'{"model": "m", "temperature": NaN}', b'{"model": "m", "user": "\\ud800"}'])
def test_what_python_servers_read_we_read(body: bytes) -> None:
    assert read_request("/x", (), body).model == "m"


def test_deep_nesting_is_unreadable_and_no_error() -> None:
    assert read_request("/x", (), b'{"messages":' + b"[" * 100_000).messages is None
