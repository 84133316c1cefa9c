"""What must hold between any two steps, whatever happened before: read from the engine's and our own books."""

from __future__ import annotations

from typing import Any

from tests.engines.vllm_inside.engine import (
    Request,
    SamplingParams,
    get_block_hash,
    get_request_block_hasher,
    maybe_convert_block_hash,
    sha256,
)
from tests.engines.vllm_inside.tiny import BLOCK
from tests.engines.vllm_inside.traces import exact_traces
from tests.engines.vllm_inside.world import World, sequence

CONTAINED = {"load", "capture", "study", "repair"}  # the stages into which tests inject faults


class PublicBlocks:
    """Hash by hash, the exact content of every block that any request of the test may publish."""

    def __init__(self) -> None:
        self.content: dict[bytes, list[int]] = {}
        self.announced: set[Any] = set()

    def learn(self, request: Any) -> None:
        tokens = sequence(request, request.num_prompt_tokens + request.max_tokens)
        twin = Request(
            "twin",
            tokens,
            SamplingParams(max_tokens=1),
            None,
            cache_salt=request.cache_salt,
            block_hasher=get_request_block_hasher(BLOCK, sha256),
        )
        traces = exact_traces(tokens)
        for n, block_hash in enumerate(twin.block_hashes):
            self.content[bytes(block_hash)] = traces[n * BLOCK : (n + 1) * BLOCK]
            self.announced.add(maybe_convert_block_hash(block_hash))


def check_exact_cache(world: World, public: PublicBlocks) -> None:
    """Rule 4: under a public hash lies exactly what an engine without reuse would have computed."""
    for block in world.scheduler.kv_cache_manager.block_pool.blocks:
        if block.block_hash is None:
            continue
        expected = public.content.get(bytes(get_block_hash(block.block_hash)))
        for rank in world.ranks:
            if expected is not None:
                assert rank.cache.row([block.block_id], BLOCK).tolist() == expected, "approximate KV is public"


def check_requests(world: World) -> None:
    """Every computed position holds its own token; requests that nothing was loaded into hold exact KV."""
    records = world.half._records
    for request in world.scheduler.running:
        done = request.num_computed_tokens
        tokens = sequence(request, done)
        table = world.scheduler.kv_cache_manager.get_block_ids(request.request_id)[0]
        for rank in world.ranks:
            row = rank.cache.row(table, done).tolist()
            assert [rank.cache.token_of[value] for value in row] == tokens
            if not records[request.request_id].is_blended:
                assert row == exact_traces(tokens)


def check_donors(world: World) -> None:
    """Planner, books and stores agree, and every donor is exact."""
    half, planner = world.half, world.scheduler.connector._planner
    book, captures = half.donors.held.book, half.donors._captures
    stored = list(book._stored)
    alone = half._cached.alone()
    assert len(planner) == len(stored) + len(alone), f"planner {len(planner)}, book {stored}, cache {alone}"
    assert not half._cached._pinned, "no pin outlives a scheduling pass"
    assert half._cached._only_tokens == sum(donor.tokens for donor in half._cached._only.values())
    assert set(half._cached._hashes) <= {*book.ids(), *alone}
    allowed = {*book.ids(), *half.donors.held._dropped, *captures._dropped}
    assert book.bytes_held == sum(d.kv_bytes for d in [*book._stored.values(), *book._reserved.values()])
    assert book.bytes_held <= book._budget
    for donor_id in stored:
        tokens = planner._index.tokens_of(donor_id)
        assert tokens is not None, "stored donors can be found"
        assert len(tokens) == book.tokens_of(donor_id)
        expected = exact_traces(tokens.tolist())
        for rank in world.ranks:
            assert rank.store.read(donor_id, 0, len(tokens))[0, 1, :, 0, 0].tolist() == expected
    for rank in world.ranks:
        assert set(rank.store._entries) <= allowed, "nothing is stored that the book does not know"


def check_sources(world: World) -> None:
    """No load of a step writes into a block that a load of the same step reads."""
    for commands in world.commands:
        sources = {block for load in commands.loads for blocks in load.cached for block in blocks}
        written = {block for load in commands.loads for block in load.block_ids[load.start // BLOCK :]}
        assert sources.isdisjoint(written)


def check_silence(world: World, public: PublicBlocks) -> None:
    for event in world.events:
        hashes = getattr(event, "block_hashes", ())
        assert all(h in public.announced for h in hashes), f"{type(event).__name__} tells of a private block"


def check_faults(world: World) -> None:
    faults = world.half.metrics.data["labelled"].get("faults", {})
    assert set(faults) <= CONTAINED, f"something of ours broke: {faults}"


def check_rest(world: World) -> None:
    """After the last request nothing is left but donors."""
    half = world.half
    assert not half._records
    assert not len(half._claims)
    assert not len(half._loads)
    assert len(half._private) == 0
    assert not half._private._public
    assert not half._private._requests
    assert not half.repairs.has_waiting_blocks
    assert not half.donors._candidates
    assert not half.donors._capturing
    assert not half.donors._ranks_stored
    assert not half.donors._captures._jobs
    assert not half.donors._captures._waiting
    assert not len(half.donors.prefills._queue)
    assert not half.donors._unheld
    assert not half.donors.prefills._copying
    assert not half.donors.held.book._reserved
    assert not world.scheduler.requests
    pool = world.scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1, "every block came back"
    for rank in world.ranks:
        assert set(rank.store._entries) == set(half.donors.held.book._stored)
        assert all(entry.written is None for entry in rank.store._entries.values())
