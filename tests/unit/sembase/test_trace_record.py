"""The trace record: what is accepted, what is refused and how the refusal reads."""

from __future__ import annotations

from typing import Any

import pytest

from sembase.errors import ContractError
from sembase.trace.record import SCHEMA, TraceBlock, TraceRecord, parse_record, record_as_json

BLOCK: dict[str, Any] = {"semantic_type": "user", "token_count": 3, "text": "a b c"}
RECORD: dict[str, Any] = {"request_id": "r1", "timestamp_ms": 5, "blocks": [BLOCK]}


def test_a_missing_field_is_unknown_and_never_zero() -> None:
    record = parse_record(RECORD, "here")
    assert record == TraceRecord("r1", 5.0, (TraceBlock("user", 3, text="a b c"),))
    assert record.observed_ttft_ms is None
    assert record.observed_prefix_hit_tokens is None
    assert record.output_tokens is None
    assert record.prompt_tokens == 3


def test_zero_observed_tokens_stay_zero_on_the_way_through_json() -> None:
    record = parse_record({**RECORD, "observed_prefix_hit_tokens": 0, "observed_ttft_ms": 0}, "here")
    written = record_as_json(record)
    assert written["observed_prefix_hit_tokens"] == 0
    assert written["observed_ttft_ms"] == 0
    assert written["schema"] == SCHEMA
    assert parse_record(written, "here") == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tenant": "x"}, "trace line 3: unknown field tenant; known: .*tenant_id.*metadata"),
        ({"schema": "sembase.trace.v2"}, "this version reads semantic_kv.trace.v1"),
        ({"blocks": []}, "at least one block"),
        ({"blocks": "x"}, "'blocks' must be a list"),
        ({"request_id": None}, "'request_id' is missing"),
        ({"request_id": ""}, "'request_id' must be non-empty text"),
        ({"request_id": 7}, "'request_id' must be non-empty text, found 7"),
        ({"timestamp_ms": "now"}, "'timestamp_ms' must be a finite number"),
        ({"timestamp_ms": True}, "'timestamp_ms' must be a finite number"),
        ({"timestamp_ms": 10**400}, "'timestamp_ms' must be a finite number"),
        ({"observed_ttft_ms": -1}, "'observed_ttft_ms' must be a finite number >= 0"),
        ({"observed_ttft_ms": float("nan")}, "'observed_ttft_ms' must be a finite number >= 0"),
        ({"output_tokens": 1.5}, "'output_tokens' must be a whole number"),
        ({"observed_prefill_tokens": 2**31}, "'observed_prefill_tokens' must be a whole number"),
        ({"metadata": [1]}, "trace line 3, metadata: expected a JSON object"),
    ],
)
def test_a_record_that_is_none_says_where_and_what(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        parse_record({**RECORD, **change}, "trace line 3")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "user"}, "trace line 3, block 0: unknown field label"),
        ({"semantic_type": "USER"}, "unknown semantic_type 'USER'; known: system, template"),
        ({"semantic_type": None}, "'semantic_type' is missing"),
        ({"token_count": 0}, "token_count is 0"),
        ({"token_count": -4}, "'token_count' must be a whole number from 0"),
        ({"token_count": True}, "'token_count' must be a whole number from 0"),
        ({"text": None}, "needs content_hash, text or block_id"),
        ({"position": -1}, "'position' must be"),
    ],
)
def test_a_block_that_is_none_says_which(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        parse_record({**RECORD, "blocks": [{**BLOCK, **change}]}, "trace line 3")


@pytest.mark.parametrize("value", [None, 3, "x", [RECORD]])
def test_only_objects_are_records(value: object) -> None:
    with pytest.raises(ContractError, match="expected a JSON object"):
        parse_record(value, "here")
