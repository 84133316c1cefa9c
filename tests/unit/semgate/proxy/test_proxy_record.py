"""Exchanges to trace records: blocks of every shape of prompt, observed values, what is never written."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.tokenizer import WordTokenizer
from sembase.trace.digest_tokens import digest_tokens
from sembase.trace.record import TraceRecord, parse_record, record_as_json
from semgate.http.reply_scan import ReplyScan
from semgate.prompt.digest import Digests
from semgate.proxy.exchange import Exchange
from semgate.proxy.record import RecordMaker

SECRET = b"k" * 32
MAKER = RecordMaker(Digests(SECRET), redact_text=True)
USAGE = {"prompt_tokens": 20, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 16}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def exchange(body: Any, *, tenant: str = "t", headers: tuple[tuple[bytes, bytes], ...] = ()) -> Exchange:
    scan = ReplyScan(is_event_stream=True)
    scan.feed(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', 10.25)
    scan.feed(b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\ndata: [DONE]\n\n", 10.5)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Exchange(
        path="/v1/chat/completions",
        headers=headers,
        body=raw,
        tenant=tenant,
        arrived_unix_ms=1_000.0,
        asked_s=10.0,
        outcome="ok",
        status=200,
        first_byte_s=10.2,
        ended_s=10.5,
        scan=scan,
    )


def record(body: Any, maker: RecordMaker = MAKER, **more: Any) -> TraceRecord:
    made = maker.record_of(exchange(body, **more))
    assert made is not None
    return made


def chat(*contents: Any, **more: Any) -> dict[str, Any]:
    roles = ("system", "user", "assistant", "tool")
    return {
        "model": "m",
        "messages": [{"role": role, "content": each} for role, each in zip(roles, contents, strict=False)],
    } | more


def test_a_chat_in_labelled_blocks_with_what_was_observed() -> None:
    made = record(chat("Be brief.", "CONTEXT: doc one\n\nsecond\n\nUSER: sum it up", "done", "result"))
    assert [block.semantic_type for block in made.blocks] == [
        "system",
        "retrieved_context",
        "retrieved_context",
        "user",
        "assistant",
        "tool_output",
    ]
    assert (made.observed_ttft_ms, made.observed_total_latency_ms) == (250.0, 500.0)
    assert (made.output_tokens, made.observed_prefix_hit_tokens, made.observed_prefill_tokens) == (5, 16, 4)
    assert made.metadata["prompt_tokens"] == 20
    assert made.timestamp_ms == 1_000.0
    assert parse_record(json.loads(json.dumps(record_as_json(made))), "here") == made


def test_a_request_of_the_responses_api_is_recorded_like_the_same_chat() -> None:
    asked = exchange({"model": "m", "instructions": "Be brief.", "input": [{"role": "user", "content": "sum it up"}]})
    asked.path = "/v1/responses"
    made = MAKER.record_of(asked)
    assert made is not None
    assert made.blocks == record(chat("Be brief.", "sum it up")).blocks


def test_text_is_kept_only_where_the_operator_keeps_it() -> None:
    assert all(block.text is None for block in record(chat("a", "b")).blocks)
    keeping = RecordMaker(Digests(SECRET), redact_text=False)
    assert [block.text for block in record(chat("a", "b\ud800"), keeping).blocks] == ["a", "b?"]


def test_tenants_do_not_share_digests_but_one_tenant_does() -> None:
    one, again, other = (record(chat("same", "text"), tenant=tenant) for tenant in ("a", "a", "b"))
    assert [block.content_hash for block in one.blocks] == [block.content_hash for block in again.blocks]
    assert not {block.content_hash for block in one.blocks} & {block.content_hash for block in other.blocks}
    assert one.tenant_id == again.tenant_id != other.tenant_id
    assert one.request_id != again.request_id


def test_tools_calls_and_media_are_blocks_of_their_own() -> None:
    parts = [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
    ]
    body = chat("sys", parts, tools=[{"type": "function", "function": {"name": "look"}}])
    body["messages"].append({"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look"}}]})
    made = record(body)
    assert [block.semantic_type for block in made.blocks] == ["template", "system", "user", "other", "assistant"]
    assert made.blocks[3].metadata == {"media": "image_url"}
    assert made.metadata["media_parts"] == 1


def test_equal_tools_in_another_order_of_keys_are_equal() -> None:
    one = record(b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"a": 1, "b": 2}]}')
    other = record(b'{"tools": [{"b": 2, "a": 1}], "messages": [{"role": "user", "content": "x"}]}')
    assert [block.content_hash for block in one.blocks] == [block.content_hash for block in other.blocks]


@pytest.mark.parametrize(
    ("prompt", "blocks", "tokens"),
    [("one two\n\nthree", 2, None), (["a", "b"], 1, None), (list(range(300)), 3, 300), ([[1, 2], [3]], 1, 2)],
)
def test_completions(prompt: Any, blocks: int, tokens: int | None) -> None:
    made = record({"model": "m", "prompt": prompt})
    assert len(made.blocks) == blocks
    assert tokens is None or made.prompt_tokens == tokens


def test_token_prompts_share_their_leading_blocks() -> None:
    one, other = (record({"prompt": [*range(256), last]}) for last in (1, 2))
    assert [block.content_hash for block in one.blocks][:2] == [block.content_hash for block in other.blocks][:2]
    assert one.blocks[2].content_hash != other.blocks[2].content_hash


def test_failures_keep_their_blocks_and_no_times() -> None:
    failed = exchange(chat("a", "b"))
    failed.outcome, failed.status, failed.fault = "upstream_fault", 502, "reset"
    made = MAKER.record_of(failed)
    assert made is not None
    assert made.observed_ttft_ms is made.observed_total_latency_ms is made.output_tokens is None
    assert (made.metadata["outcome"], made.metadata["fault"], made.metadata["status"]) == (
        "upstream_fault",
        "reset",
        502,
    )


def test_names_of_clients_are_digests() -> None:
    made = record(chat("a", "b", user="bob"), headers=((b"x-session-id", b"session of bob"),))
    assert made.session_id is not None
    assert "bob" not in json.dumps(record_as_json(made))
    assert record(chat("a", "b", user="bob")).session_id != made.session_id


def test_a_model_is_a_digest_that_all_tenants_share_unless_text_is_kept() -> None:
    one, other = (record(chat("a", "b"), tenant=tenant).model_name for tenant in ("t", "u"))
    assert one == other != "m"
    assert record(chat("a", "b") | {"model": "n"}).model_name != one
    assert record(chat("a", "b"), RecordMaker(Digests(SECRET), redact_text=False)).model_name == "m"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"messages": []}', b'{"messages": [1, null, {}]}'])
def test_without_a_prompt_there_is_no_record(body: bytes) -> None:
    assert MAKER.record_of(exchange(body)) is None


@given(st.dictionaries(st.sampled_from(["messages", "prompt", "model", "tools", "user", "n"]), JSON))
def test_whatever_comes_the_record_is_valid_or_none(body: dict[str, Any]) -> None:
    made = MAKER.record_of(exchange(body))
    assert made is None or parse_record(json.loads(json.dumps(record_as_json(made))), "here") == made


LONG = " ".join(f"harbour{n} ledger" for n in range(60))


def test_a_redacted_record_has_keyed_digests_of_its_tokens_and_no_text() -> None:
    made = record(chat("Be brief.", LONG))
    assert made.content_digests is not None
    assert made.content_digests.token_count == made.prompt_tokens
    assert made.tokenizer == "builtin"
    assert made.shows == "any_position"
    written = json.dumps(record_as_json(made))
    assert "harbour" not in written
    assert "ledger" not in written
    ids = WordTokenizer().ids(LONG)
    assert not any(str(number) in written for number in ids.tolist())
    assert np.asarray(ids, "<u4").tobytes()[:8] not in made.content_digests.packed


def test_the_same_prompt_repeats_within_a_tenant_and_under_one_secret_only() -> None:
    other_secret = RecordMaker(Digests(bytes(32)), redact_text=True)
    made = [record(chat("x", LONG), tenant=tenant) for tenant in ("a", "a", "b")]
    made.append(record(chat("x", LONG), other_secret, tenant="a"))
    first, again, *others = (each.content_digests for each in made)
    assert first == again
    assert first is not None
    for other in others:
        assert other is not None
        assert 0.1 < (other.values() == first.values()).mean() < 0.4


def test_a_record_with_all_its_text_needs_no_digests() -> None:
    keeping = RecordMaker(Digests(SECRET), redact_text=False)
    assert record(chat("a", LONG), keeping).content_digests is None
    picture = {"type": "image_url", "image_url": {"url": "data:x"}}
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": LONG}, picture]}]}
    assert record(body, keeping).content_digests is not None


def test_token_ids_of_a_client_are_the_tokens() -> None:
    ids = list(range(1000, 1300))
    made = record({"model": "m", "prompt": ids})
    assert made.tokenizer is None
    assert made.content_digests == digest_tokens(np.array(ids), Digests(SECRET).key_of_contents("t"))


def test_remembered_tokens_are_right() -> None:
    maker = RecordMaker(Digests(SECRET), redact_text=True)
    first = record(chat("one two three", "four"), maker)
    again = record(chat("one two three", "four"), maker)
    assert [block.token_count for block in first.blocks] == [block.token_count for block in again.blocks] == [3, 1]
    assert first.content_digests == again.content_digests


def test_digests_are_compiled_before_the_first_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer's thread has a limited time at shutdown, and compiling took most of it."""
    sizes: list[int] = []

    def counted(tokens: Any, key: bytes) -> Any:
        sizes.append(len(tokens))
        return digest_tokens(tokens, key)

    monkeypatch.setattr("semgate.proxy.record.digest_tokens", counted)
    RecordMaker(Digests(SECRET), redact_text=True)
    assert sizes
