"""Content digests: equal tokens have equal digests under one key only, they survive packing, and damage is refused."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError, ContractError
from sembase.trace.anonymise import anonymise
from sembase.trace.content_digests import BITS, GRAM, GUARANTEE, ContentDigests, decode_digests
from sembase.trace.digest_tokens import KEY_BYTES, PUBLIC_KEY, digest_key, digest_tokens, siphash
from sembase.trace.from_prompt import record_from_prompt
from sembase.trace.load import read_records
from sembase.trace.record import TraceBlock, TraceRecord, parse_record, record_as_json
from sembase.trace.save import save_records
from sembase.trace.token_rows import TokenRows, unknown_rows, unknown_tokens
from semblend.fingerprint import anchors

KEY = bytes(range(KEY_BYTES))
SEEDS = st.integers(0, 2**32 - 1)


def random_tokens(length: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(0, 50_000, length)


def test_siphash_gives_the_published_value() -> None:
    message = np.frombuffer(bytes(range(8)), "<u8").astype(np.uint64)
    assert siphash(message, KEY).tolist() == [0x93F5F5799A932462]


def test_the_path_without_a_compiler_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = random_tokens(500)
    compiled = digest_tokens(tokens, KEY)
    from sembase.trace import digest_tokens as module

    monkeypatch.setattr(module, "HAS_COMPILER", False)
    for name in ("_siphash", "_round", "_rotate"):
        monkeypatch.setattr(module, name, getattr(getattr(module, name), "py_func", getattr(module, name)))
    assert digest_tokens(tokens, KEY) == compiled


@settings(deadline=None)
@given(seed=SEEDS, length=st.integers(0, 300))
def test_packing_and_encoding_round_trip(seed: int, length: int) -> None:
    digests = digest_tokens(random_tokens(length, seed), KEY)
    assert digests.token_count == length
    assert decode_digests(digests.encode(), "here") == digests
    values = digests.values()
    assert len(values) == length
    spread = (digests.words()[:, None] >> np.arange(0, 64, BITS, dtype=np.uint64)) & np.uint64(3)
    assert spread.reshape(-1)[:length].tolist() == values.tolist()


@settings(deadline=None)
@given(seed=SEEDS, left=st.integers(1, 40), right=st.integers(1, 40), length=st.integers(GRAM, 120))
def test_a_run_has_equal_digests_wherever_it_is(seed: int, left: int, right: int, length: int) -> None:
    run = random_tokens(length, seed)
    here = digest_tokens(np.concatenate([random_tokens(left, seed + 1), run]), KEY).values()
    there = digest_tokens(np.concatenate([random_tokens(right, seed + 2), run]), KEY).values()
    whole = length - (GRAM - 1)
    assert here[-whole:].tolist() == there[-whole:].tolist()


def test_the_guarantee_is_the_planners() -> None:
    assert GUARANTEE == anchors.GUARANTEE


def test_a_record_costs_a_third_of_a_byte_per_token() -> None:
    tokens = 10_000
    digests = digest_tokens(random_tokens(tokens), KEY)
    assert len(digests.packed) == tokens / 4
    assert len(digests.encode()) / tokens < 0.335


def agreement(one: ContentDigests, other: ContentDigests) -> float:
    return float((one.values() == other.values()).mean())


def test_other_keys_and_other_tenants_agree_as_often_as_chance() -> None:
    tokens = random_tokens(20_000)
    mine = digest_tokens(tokens, digest_key(b"tenant a"))
    assert agreement(mine, digest_tokens(tokens, digest_key(b"tenant a"))) == 1
    others = [digest_key(b"tenant b"), KEY, PUBLIC_KEY]
    for other in others:
        assert agreement(mine, digest_tokens(tokens, other)) == pytest.approx(0.25, abs=0.02)


def test_one_other_token_changes_only_the_grams_that_have_it() -> None:
    tokens = random_tokens(4000)
    changed = tokens.copy()
    changed[::100] += 1
    differs = digest_tokens(tokens, KEY).values() != digest_tokens(changed, KEY).values()
    touched = (np.arange(4000) % 100) < GRAM
    assert not differs[~touched].any()
    assert differs[touched].mean() == pytest.approx(0.75, abs=0.06)


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has 3 bytes, not 16"):
        digest_tokens(random_tokens(5), b"abc")


def _reencoded(change: Callable[[bytes], bytes]) -> str:
    raw = base64.b64decode(digest_tokens(random_tokens(100), KEY).encode())
    return base64.b64encode(change(raw)).decode()


DAMAGE: dict[str, tuple[str, str]] = {
    "letters that are not base64": ("****", "not base64"),
    "cut": (digest_tokens(random_tokens(100), KEY).encode()[:-8], "its checksum does not match"),
    "almost empty": (base64.b64encode(b"abc").decode(), "its checksum does not match"),
    "one bit": (_reencoded(lambda raw: raw[:20] + bytes([raw[20] ^ 1]) + raw[21:]), "its checksum does not match"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_digests_are_refused_in_one_sentence(tmp_path: Path, damage: str) -> None:
    encoded, reason = DAMAGE[damage]
    path = tmp_path / "trace.jsonl"
    written = record_as_json(TraceRecord("r", 0, (TraceBlock("user", 100, content_hash="x"),)))
    path.write_text(json.dumps({**written, "content_digests": encoded}) + "\n")
    with pytest.raises(ContractError) as refused:
        list(read_records(path, "trace_v1"))
    assert str(refused.value) == f"trace.jsonl line 1: 'content_digests' is damaged: {reason}"


def test_digests_of_a_later_release_and_of_other_lengths_are_refused() -> None:
    from sembase.trace.content_digests import _checksum

    def signed(body: bytes) -> str:
        return base64.b64encode(body + _checksum(body)).decode()

    with pytest.raises(ContractError, match="has version 2; this release reads version 1"):
        decode_digests(signed(b"\x02" + bytes(4)), "here")
    with pytest.raises(ContractError, match="its length is not that of 9 tokens"):
        decode_digests(signed(b"\x01\x09\x00\x00\x00\xff"), "here")
    record = record_as_json(TraceRecord("r", 0, (TraceBlock("user", 99, content_hash="x"),)))
    with pytest.raises(ContractError, match="has 100 tokens, but the blocks have 99"):
        parse_record({**record, "content_digests": digest_tokens(random_tokens(100), KEY).encode()}, "here")


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.csv", "t.parquet", "t.jsonl.gz"])
def test_every_format_of_records_keeps_digests(tmp_path: Path, name: str) -> None:
    blocks = (TraceBlock("system", 40, content_hash="x"), TraceBlock("user", 60, content_hash="y"))
    records = [
        TraceRecord("r1", 0, blocks, tokenizer="builtin", content_digests=digest_tokens(random_tokens(100), KEY)),
        TraceRecord("r2", 1, blocks),
    ]
    save_records(records, tmp_path / name)
    read = list(read_records(tmp_path / name))
    assert [each.content_digests for each in read] == [each.content_digests for each in records]
    assert [each.tokenizer for each in read] == ["builtin", None]
    assert [each.shows for each in read] == ["any_position", "block"]


def test_anonymised_texts_leave_keyed_digests_behind() -> None:
    record = record_from_prompt("The ferry leaves at noon. " * 30, request_id="r", timestamp_ms=0, tenant_id="t")
    [hidden] = anonymise([record], b"0123456789abcdef")
    assert hidden.content_digests is not None
    assert hidden.shows == "any_position"
    assert "ferry" not in json.dumps(record_as_json(hidden))
    assert agreement(hidden.content_digests, TokenRows().digests_of(record)) < 0.5
    assert next(anonymise([hidden], b"another key of 16")).content_digests == hidden.content_digests


def test_a_row_has_the_tokens_of_the_blocks_and_recent_texts_are_remembered() -> None:
    record = record_from_prompt("One two three.\n\nFour five six.", request_id="r", timestamp_ms=0)
    rows = TokenRows(cached_tokens=8)
    row = rows.of_record(record)
    assert len(row) == record.prompt_tokens
    assert rows.of_record(record).tolist() == row.tolist() == TokenRows().of_record(record).tolist()
    assert rows._held <= 8


def test_unknown_tokens_are_equal_only_in_equal_blocks() -> None:
    one = unknown_tokens("a", 64)
    assert one.tolist() == unknown_tokens("a", 64).tolist()
    assert len(np.unique(np.concatenate([one, unknown_tokens("b", 64), unknown_tokens("a", 65)]))) == 193


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(max_size=5), st.integers(0, 30)), min_size=1, max_size=8))
def test_unknown_blocks_of_a_row_are_those_of_each_block_alone(blocks: list[tuple[str, int]]) -> None:
    expected = []
    for identity, tokens in blocks:
        digest = hashlib.blake2b(f"{tokens} {identity}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        start = int.from_bytes(digest, "big")
        expected += [(start + at * 0x9E3779B97F4A7C15) % 2**64 >> 32 for at in range(tokens)]
    assert unknown_rows(blocks).tolist() == expected
    record = TraceRecord("r", 0, tuple(TraceBlock("user", tokens, content_hash=f"x{i}") for i, tokens in blocks))
    alone = [unknown_tokens(f"x{identity}", tokens) for identity, tokens in blocks]
    assert TokenRows().of_record(record).tolist() == np.concatenate(alone).tolist()


def test_a_prompt_of_impossible_length_is_refused() -> None:
    endless = TraceRecord("r7", 0, (TraceBlock("user", 2**31 - 1, content_hash="x"),))
    with pytest.raises(ContractError, match="r7: 2147483647 prompt tokens exceed the maximum"):
        TokenRows().of_record(endless)
