"""Passages first seen inside a blended request: studied while nobody waits, exact, found again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.vllm_inside.checks import check_donors, check_rest
from tests.engines.vllm_inside.world import World, make_world

from semblend.contract import FaultContained, TokenRange
from semblend.integration.vllm import study
from semblend.integration.vllm.study import HEAD_TOKENS, STEP_TOKENS, study_text

pytestmark = pytest.mark.engine
BLOCKS = 240


def text(seed: int, tokens: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 512, tokens)]


KNOWN, NOVEL = text(1, 300), text(2, 200)


def blended(tmp_path: Path, **options: Any) -> World:
    """A world in which KNOWN has a donor."""
    world = make_world(tmp_path, blocks=BLOCKS, host_tokens=4096, **options)
    world.serve("a", KNOWN)
    return world


def free_blocks(world: World) -> int:
    return int(world.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())


@pytest.mark.parametrize(("ranks", "depth"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_a_novel_passage_of_a_blended_request_is_found_again(tmp_path: Path, ranks: int, depth: int) -> None:
    world = blended(tmp_path, ranks=ranks, depth=depth)
    first = world.serve("b", text(9, 40) + KNOWN + NOVEL)
    assert first["outcome"] == "backend_materialized_reuse"
    assert first["donor_id"] in world.half.donors, "the client is told under which id its passages were kept"
    check_donors(world)  # its KV is that of cold prefill of its own tokens
    again = world.serve("c", text(8, 20) + NOVEL + text(7, 30))
    assert again["reused_tokens"] >= len(NOVEL) - 16
    check_rest(world)


def test_without_the_option_it_is_only_remembered(tmp_path: Path) -> None:
    world = blended(tmp_path, study=False)
    first = world.serve("b", text(9, 40) + KNOWN + NOVEL)
    assert first["donor_id"] is None
    assert len(world.half._look_up._second_sight) == 1


def test_a_study_computes_only_in_steps_nobody_else_uses(tmp_path: Path) -> None:
    world = blended(tmp_path)
    world.add("b", text(9, 40) + KNOWN + NOVEL, 1)
    world.add("long", text(5, 100), 20)
    world.drain()
    studied = [n for n, orders in enumerate(world.orders) if orders.study is not None]
    scheduled = [orders for orders in world.orders if orders.study is not None]
    assert sum(len(orders.study.token_ids) for orders in scheduled) == HEAD_TOKENS + len(NOVEL)
    assert all(len(orders.study.token_ids) <= STEP_TOKENS for orders in scheduled)
    assert studied[0] > 20, "the other request's tokens came first"
    assert len(world.half.donors) == 2


def test_an_engine_that_stays_busy_gets_its_blocks_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "MAX_BUSY_STEPS", 30)
    world = blended(tmp_path)
    world.add("b", text(9, 40) + KNOWN + NOVEL, 1)
    world.add("long", text(5, 100), 60)
    for _ in range(45):
        world.step()
    assert "long" in world.scheduler.requests, "the engine is still busy"
    assert "b" not in world.scheduler.requests, "nothing of it is held any longer"
    assert len(world.half._look_up._second_sight) == 1, "the passage may try again when it comes again"
    world.drain()
    check_donors(world)
    check_rest(world)


def test_a_fault_in_the_study_costs_nothing_but_the_donor(tmp_path: Path) -> None:
    events: list[Any] = []
    world = blended(tmp_path, emit=events.append)
    before = free_blocks(world)
    forward = world.ranks[0].half._sparse_forward
    assert forward is not None
    compute = forward.compute

    def broken(block_ids: Any, ranges: Any, token_ids: Any) -> None:
        if len(token_ids) == STEP_TOKENS:
            raise OSError("injected")
        compute(block_ids, ranges, token_ids)

    forward.compute = broken  # type: ignore[method-assign]
    reply = world.serve("b", text(9, 40) + KNOWN + NOVEL)
    assert reply["outcome"] == "backend_materialized_reuse"
    assert len(world.half.donors) == 1
    faults = [event for event in events if isinstance(event, FaultContained)]
    assert [fault.error for fault in faults] == ["study: OSError: injected"]
    assert free_blocks(world) == before
    check_donors(world)
    check_rest(world)


def test_a_reset_in_the_middle_of_a_study_frees_everything(tmp_path: Path) -> None:
    world = blended(tmp_path)
    world.add("b", text(9, 40) + KNOWN + NOVEL, 1)
    while not any(orders.study is not None for orders in world.orders):
        world.step()
    world.scheduler.reset_prefix_cache(reset_connector=True)
    world.drain()
    assert len(world.half.donors) == 0
    check_rest(world)


def test_a_small_cache_lends_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=60, host_tokens=4096)
    world.serve("a", KNOWN)
    assert world.serve("b", text(9, 40) + KNOWN + NOVEL)["donor_id"] is None
    assert not any(orders.study is not None for orders in world.orders)


def test_the_text_has_a_head_and_fits() -> None:
    prompt = np.arange(1000, dtype=np.uint32)
    novel = [TokenRange(500, 600), TokenRange(700, 800)]
    whole = study_text(prompt, novel, 10_000).tolist()
    assert whole == [*range(HEAD_TOKENS), *range(500, 600), *range(700, 800)]
    assert study_text(prompt, novel, 128).tolist() == whole[:128]
