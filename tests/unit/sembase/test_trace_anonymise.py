"""Anonymised traces: the same cache behaviour, and nothing left of the texts, their authors or their times."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sembase.errors import ConfigurationError
from sembase.trace.anonymise import anonymise, new_key
from sembase.trace.build import build_trace
from sembase.trace.record import TraceBlock, TraceRecord, record_as_json

KEY = b"0123456789abcdef"
SECRETS = ("confidential", "clinic", "alice", "gpt-secret", "ticket", "rq-77", "blk-5", "1760428436")


def record(tenant: str | None, *texts: str, at_ms: float = 1_760_428_436_000.0) -> TraceRecord:
    return TraceRecord(
        request_id="rq-77",
        timestamp_ms=at_ms,
        blocks=tuple(
            TraceBlock("user", 7, text=text, block_id="blk-5", position=n, metadata={"ticket": "confidential"})
            for n, text in enumerate(texts)
        ),
        session_id="alice",
        tenant_id=tenant,
        model_name="gpt-secret",
        observed_ttft_ms=12.5,
        observed_prefix_hit_tokens=0,
        metadata={"ticket": "confidential", "warm_up": True},
    )


def test_nothing_of_the_original_is_left_but_counts_and_timings() -> None:
    [hidden] = anonymise([record("clinic", "confidential words")], KEY)
    written = json.dumps(record_as_json(hidden))
    for secret in SECRETS:
        assert secret not in written
    assert hidden.timestamp_ms == 0
    assert hidden.observed_ttft_ms == 12.5
    assert hidden.observed_prefix_hit_tokens == 0
    assert hidden.metadata == {"warm_up": True}
    block = hidden.blocks[0]
    assert (block.semantic_type, block.token_count, block.position) == ("user", 7, 0)
    assert block.text is None
    assert block.block_id is None
    assert block.metadata == {}


def test_a_kept_switch_cannot_carry_words() -> None:
    spoken = TraceRecord("r", 0, record("clinic", "x").blocks, metadata={"warm_up": "confidential"})
    [hidden] = anonymise([spoken], KEY)
    assert hidden.metadata == {}


def test_the_cache_sees_the_same_tree() -> None:
    records = [
        record("clinic", "a", "b"),
        record("clinic", "a", "c", at_ms=1_760_428_436_020.0),
        record("bank", "a", "b", at_ms=1_760_428_436_030.0),
        record(None, "a", "b", at_ms=1_760_428_436_040.0),
        record("clinic", "b", "a", at_ms=1_760_428_436_050.0),
    ]
    before, after = build_trace(records, "t"), build_trace(anonymise(records, KEY), "t")
    for name in ("offsets", "nodes", "parent", "content", "node_tokens", "node_label", "tenant"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name
    assert after.session.tolist() == [0, 0, 1, 2, 0]  # one name at three tenants is three people
    assert after.arrival_ms.tolist() == [0, 20, 30, 40, 50]


def test_digests_depend_on_the_key_the_tenant_and_the_content() -> None:
    def digest(tenant: str | None, text: str, key: bytes) -> str | None:
        return next(anonymise([record(tenant, text)], key)).blocks[0].content_hash

    base = digest("clinic", "a", KEY)
    assert base == digest("clinic", "a", KEY)
    others = {digest("bank", "a", KEY), digest(None, "a", KEY), digest("", "a", KEY), digest("clinic", "b", KEY)}
    others.add(digest("clinic", "a", new_key()))
    assert base not in others
    assert len(others) == 5
    assert base is not None
    assert len(base) == 32


def test_a_short_key_is_no_key() -> None:
    with pytest.raises(ConfigurationError, match="the key has 6 bytes; use at least 16"):
        list(anonymise([record("clinic", "a")], b"secret"))
