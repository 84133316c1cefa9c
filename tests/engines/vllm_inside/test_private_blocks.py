"""Private hashes with the engine's own requests, hasher and block pool."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.vllm_inside.engine import (
    BlockPool,
    BlockRemoved,
    BlockStored,
    Request,
    SamplingParams,
    get_request_block_hasher,
    init_none_hash,
    maybe_convert_block_hash,
    sha256,
)

from semblend.integration.vllm.private_blocks import PrivateBlocks

pytestmark = pytest.mark.engine
BLOCK = 16
init_none_hash(sha256)


def request_of(tokens: int, name: str = "r", salt: str | None = None) -> Any:
    return Request(
        name,
        list(range(3, 3 + tokens)),
        SamplingParams(max_tokens=99),
        None,
        cache_salt=salt,
        block_hasher=get_request_block_hasher(BLOCK, sha256),
    )


sizes = st.integers(BLOCK, 8 * BLOCK)


@given(sizes, st.integers(0, 7), st.integers(1, 3))
def test_claim_and_restore_are_inverses_and_claims_repeat(tokens: int, block: int, times: int) -> None:
    request, private = request_of(tokens), PrivateBlocks(BLOCK)
    before, boundary = list(request.block_hashes), block * BLOCK
    if not private.can_claim(request, boundary):
        assert tokens // BLOCK <= block
        return
    for _ in range(times):
        private.claim(request, boundary)
        assert request.block_hashes[:block] == before[:block]
        assert set(request.block_hashes[block:]).isdisjoint(before)
        assert len(request.block_hashes) == len(before)
    assert private.boundary("r") == boundary
    private.restore(request)
    assert request.block_hashes == before
    private.restore(request)
    assert request.block_hashes == before
    assert len(private) == 0


@given(sizes, st.integers(0, 7), st.integers(1, 60))
@settings(max_examples=50)
def test_blocks_filled_later_are_private_too_and_public_after_a_restore(tokens: int, block: int, more: int) -> None:
    request, private = request_of(tokens), PrivateBlocks(BLOCK)
    if not private.can_claim(request, block * BLOCK):
        return
    public = request_of(tokens)
    private.claim(request, block * BLOCK)
    for token in range(more):
        request.append_output_token_ids(token)
        public.append_output_token_ids(token)
    assert len(request.block_hashes) == len(public.block_hashes) == (tokens + more) // BLOCK
    assert set(request.block_hashes[block:]).isdisjoint(public.block_hashes)
    private.restore(request)
    assert request.block_hashes == public.block_hashes


def test_two_claims_never_share_a_hash() -> None:
    private, one, other = PrivateBlocks(BLOCK), request_of(64, "a"), request_of(64, "b")
    private.claim(one, 0)
    private.claim(other, 0)
    assert set(one.block_hashes).isdisjoint(other.block_hashes)


def fill(pool: Any, request: Any) -> list[Any]:
    blocks = pool.get_new_blocks(len(request.block_hashes))
    pool.cache_full_blocks(request, blocks, 0, len(blocks), BLOCK, 0)
    return list(blocks)


def announced(pool: Any) -> list[tuple[str, Any]]:
    return [
        (type(event).__name__, block_hash)
        for event in pool.kv_event_queue
        if isinstance(event, BlockStored | BlockRemoved)
        for block_hash in event.block_hashes
    ]


def test_release_evicts_private_blocks_and_only_they_are_silenced() -> None:
    pool = BlockPool(32, True, BLOCK, enable_kv_cache_events=True)
    private, blended, plain = PrivateBlocks(BLOCK), request_of(4 * BLOCK, "a"), request_of(4 * BLOCK, "b", salt="s")
    private.claim(blended, 0)
    blocks = fill(pool, blended)
    fill(pool, plain)
    private.silence(pool)
    expected = [("BlockStored", maybe_convert_block_hash(block_hash)) for block_hash in plain.block_hashes]
    assert announced(pool) == expected
    private.release(blended, pool)
    assert all(block.block_hash is None for block in blocks)
    assert all(pool.get_cached_block(block_hash, [0]) is None for block_hash in blended.block_hashes)
    assert all(pool.get_cached_block(block_hash, [0]) for block_hash in plain.block_hashes)
    assert announced(pool) == expected
    assert len(private) == 0


def test_a_reused_id_does_not_touch_the_new_request() -> None:
    private, old, new = PrivateBlocks(BLOCK), request_of(64), request_of(64, salt="other")
    private.claim(old, 0)
    before = list(new.block_hashes)
    private.restore(new)
    assert new.block_hashes == before
    assert not private.holds("r")
    assert not private._public, "nothing of the old request is kept"
