"""Donors in the engine's own cache, under the engine's own scheduler and block pool."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.engines.vllm_inside.checks import PublicBlocks, check_donors, check_exact_cache, check_requests, check_rest
from tests.engines.vllm_inside.test_world import text
from tests.engines.vllm_inside.tiny import BLOCK
from tests.engines.vllm_inside.world import World, make_world

pytestmark = pytest.mark.engine
DOCUMENT = text(1, 300)
MOVED = text(2, 50) + DOCUMENT + text(3, 20)
TOO_SMALL = 128  # tokens of host memory: no document fits


def loads_of(world: World) -> list[Any]:
    return [load for commands in world.commands for load in commands.loads]


def row_of(world: World, request_id: str) -> list[int]:
    """What the cache holds of a request once its load was made."""
    request = world.scheduler.requests[request_id]
    table = world.scheduler.kv_cache_manager.get_block_ids(request_id)[0]
    return [int(value) for value in world.ranks[-1].cache.row(table, request.num_computed_tokens)]


@pytest.mark.parametrize(("ranks", "depth"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_a_load_from_the_cache_holds_the_numbers_of_one_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, depth: int
) -> None:
    rows = []
    for cached in (True, False):
        world = make_world(tmp_path, blocks=80, ranks=ranks, depth=depth, batch_tokens=512, cached_donors=cached)
        counted = Counter[str]()
        monkeypatch.setattr(world.half.metrics, "add", lambda name, value, to=counted: to.update({name: value}))
        world.serve("a", DOCUMENT)
        world.add("b", MOVED, 4)
        world.step()
        world.flush()
        check_requests(world)
        rows.append(row_of(world, "b"))
        [load] = loads_of(world)
        # The run ends in the donor's last block, which is not full: that part comes from the store.
        assert [len(blocks) for blocks in load.cached] == ([len(DOCUMENT) // BLOCK] if cached else [])
        world.drain()
        assert world.replies["b"]["reused_tokens"] == 292
        assert counted["cache_loaded_tokens"] == (288 - 8 if cached else 0)
        check_rest(world)
    assert rows[0] == rows[1]


def test_blocks_that_left_the_cache_are_loaded_from_the_store(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=80)
    world.serve("a", DOCUMENT)
    assert world.scheduler.reset_prefix_cache()
    assert world.serve("b", MOVED)["reused_tokens"] == 292
    [load] = loads_of(world)
    assert not any(load.cached)
    assert not any(report.load_faults for report in world.reports)


def test_a_donor_without_a_copy_serves_until_its_blocks_leave(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=80, host_tokens=TOO_SMALL)
    first = world.serve("a", DOCUMENT)
    assert first["donor_id"] is not None
    assert len(world.half.donors) == 0
    assert len(world.half._cached) == 1
    assert world.serve("b", MOVED)["reused_tokens"] == 288 - 8, "its full blocks"
    assert all(not rank.store._entries for rank in world.ranks), "nothing was copied"
    assert world.scheduler.reset_prefix_cache()
    assert world.serve("c", MOVED)["outcome"] == "cold_fallback"
    assert len(loads_of(world)) == 1, "a donor that nothing holds is not loaded"
    check_donors(world)
    check_rest(world)


def test_a_donor_the_store_evicts_is_still_found_in_the_cache(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=200, host_tokens=420)
    world.serve("a", DOCUMENT)
    world.serve("other", text(9, 400))
    assert len(world.half.donors) == len(world.half._cached) == 1
    check_donors(world)
    assert world.serve("b", MOVED)["reused_tokens"] == 288 - 8
    assert all(load.cached for load in loads_of(world))


def test_another_tenant_s_blocks_are_never_found(tmp_path: Path) -> None:
    for host_tokens in (1024, TOO_SMALL):
        world = make_world(tmp_path, blocks=80, host_tokens=host_tokens)
        world.serve("a", DOCUMENT, salt="x")
        assert world.serve("b", MOVED, salt="y")["outcome"] == "cold_fallback"
        assert world.serve("c", MOVED)["outcome"] == "cold_fallback"
        assert not loads_of(world)
        assert world.serve("d", text(4, 50) + DOCUMENT, salt="x")["outcome"] == "backend_materialized_reuse"


@pytest.mark.parametrize("host_tokens", [1024, TOO_SMALL])
def test_blocks_that_the_same_step_computes_are_not_a_source(tmp_path: Path, host_tokens: int) -> None:
    """The engine names a block by its hash before it is computed, and loads come before the step's forward pass."""
    world = make_world(tmp_path, blocks=120, batch_tokens=1000, host_tokens=host_tokens)
    world.serve("a", DOCUMENT)
    assert world.scheduler.reset_prefix_cache()
    public = PublicBlocks()
    public.learn(world.add("x", DOCUMENT, 4, reuse=False, capture=False))
    public.learn(world.add("b", MOVED, 4))
    world.step()
    world.flush()
    assert len(world.scheduler.running) == 2
    check_requests(world)
    assert not any(blocks for load in loads_of(world) for blocks in load.cached)
    world.drain()
    check_exact_cache(world, public)


def test_pins_never_keep_the_engine_from_placing_a_request(tmp_path: Path) -> None:
    """10 of 19 blocks are the donor's, and the request needs 12."""
    world = make_world(tmp_path, blocks=20, host_tokens=TOO_SMALL)
    world.serve("a", DOCUMENT)
    assert len(world.half._cached) == 1
    assert world.serve("b", MOVED)["outcome"] == "cold_fallback"
    check_rest(world)


def test_a_claim_that_is_not_accepted_gives_its_pins_back_and_takes_no_others(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=80)
    world.serve("a", DOCUMENT)
    pool = world.scheduler.kv_cache_manager.block_pool
    free = pool.get_num_free_blocks()
    allocate = world.scheduler.kv_cache_manager.allocate_slots
    world.scheduler.kv_cache_manager.allocate_slots = lambda *_, **__: None
    world.add("b", MOVED, 2)
    pinned = []
    unpin = world.half._cached.unpin

    def counted() -> None:
        pinned.append(len(world.half._cached._pinned))
        unpin()

    world.half._cached.unpin = counted
    world.step()
    world.step()
    assert pinned == [len(DOCUMENT) // BLOCK, 0]
    assert pool.get_num_free_blocks() == free
    world.scheduler.kv_cache_manager.allocate_slots = allocate
    world.drain()
    assert world.replies["b"]["reused_tokens"] == 292, "from the store"
    check_rest(world)


@pytest.mark.parametrize("broken", ["commands", "allocated"])
def test_a_fault_between_claim_and_load_gives_the_pins_back(tmp_path: Path, broken: str) -> None:
    world = make_world(tmp_path, blocks=80)
    world.serve("a", DOCUMENT)
    half: Any = world.half
    whole = getattr(half, broken)

    def fail(*_: Any, **__: Any) -> None:
        setattr(half, broken, whole)
        assert half._cached._pinned
        raise OSError("injected")

    setattr(half, broken, fail)
    world.add("b", MOVED, 2)
    world.step()
    assert not half._cached._pinned
    world.drain()
    check_rest(world)
