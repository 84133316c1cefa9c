"""Passages first seen inside a blended request: prefilled while no request waits, exact, found again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.vllm_inside.checks import check_donors, check_rest
from tests.engines.vllm_inside.engine import PauseState
from tests.engines.vllm_inside.world import World, make_world

from semblend.contract import FaultContained, TokenRange
from semblend.integration.vllm import passage_prefill
from semblend.integration.vllm.passage_prefill import HEAD_TOKENS, STEP_TOKENS, passage_text

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
    assert len(world.half.donors) == 2
    check_donors(world)  # its KV is that of cold prefill of its own tokens
    again = world.serve("c", text(8, 20) + NOVEL + text(7, 30))
    assert again["reused_tokens"] >= len(NOVEL) - 16
    check_rest(world)


def test_without_the_option_it_is_only_remembered(tmp_path: Path) -> None:
    world = blended(tmp_path, prefill_passages=False)
    first = world.serve("b", text(9, 40) + KNOWN + NOVEL)
    assert first["donor_id"] is None
    assert len(world.half._look_up._refresh) == 1


def test_a_prefill_computes_only_in_idle_steps(tmp_path: Path) -> None:
    world = blended(tmp_path)
    world.add("b", text(9, 40) + KNOWN + NOVEL, 1)
    world.add("long", text(5, 100), 20)
    world.drain()
    prefilled = [n for n, commands in enumerate(world.commands) if commands.prefill is not None]
    scheduled = [commands for commands in world.commands if commands.prefill is not None]
    assert sum(len(commands.prefill.token_ids) for commands in scheduled) == HEAD_TOKENS + len(NOVEL)
    assert all(len(commands.prefill.token_ids) <= STEP_TOKENS for commands in scheduled)
    assert prefilled[0] > 20, "the other request's tokens came first"
    assert len(world.half.donors) == 2


def test_an_engine_that_stays_busy_gets_its_blocks_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage_prefill, "MAX_BUSY_STEPS", 30)
    world = blended(tmp_path)
    world.add("b", text(9, 40) + KNOWN + NOVEL, 1)
    world.add("long", text(5, 100), 60)
    for _ in range(45):
        world.step()
    assert "long" in world.scheduler.requests, "the engine is still busy"
    assert "b" not in world.scheduler.requests, "nothing of it is held any longer"
    assert len(world.half._look_up._refresh) == 1, "the passage may try again when it comes again"
    world.drain()
    check_donors(world)
    check_rest(world)


@pytest.mark.parametrize("slice_number", [0, 1])
def test_a_fault_in_the_prefill_costs_nothing_but_the_donor(tmp_path: Path, slice_number: int) -> None:
    events: list[Any] = []
    world = blended(tmp_path, emit=events.append, capture_step_tokens=64)
    before = free_blocks(world)
    break_slice(world, slice_number)
    reply = world.serve("b", text(9, 40) + KNOWN + NOVEL)
    assert reply["outcome"] == "backend_materialized_reuse"
    assert len(world.half.donors) == 1
    faults = [event for event in events if isinstance(event, FaultContained)]
    assert [(fault.stage, fault.error) for fault in faults] == [("study", "study: OSError: injected")]
    assert free_blocks(world) == before
    assert len(world.half._look_up._refresh) == 1, "the passage may try again when it comes again"
    check_donors(world)
    check_rest(world)


def break_slice(world: World, number: int) -> None:
    """The slice of this number of the next isolated prefill cannot be computed."""
    forward = world.ranks[0].forward
    compute = forward.compute

    def broken(block_ids: Any, ranges: Any, token_ids: Any) -> None:
        if ranges[0].start == number * STEP_TOKENS and len(token_ids) in (STEP_TOKENS, HEAD_TOKENS + 200 - STEP_TOKENS):
            raise OSError("injected")
        compute(block_ids, ranges, token_ids)

    forward.compute = broken  # type: ignore[method-assign]


def test_a_failed_prefill_whose_copy_waits_its_turn_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    world = blended(tmp_path, capture_step_tokens=32)
    break_slice(world, 1)
    world.add("b", text(9, 40) + KNOWN + NOVEL, 1)
    world.add("other", text(3, 400), 1)  # its copy takes the step's tokens, so that the prefill's has to wait
    world.drain()
    check_donors(world)
    check_rest(world)


def test_no_donor_is_evicted_for_a_prefill_that_does_not_run(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=BLOCKS, host_tokens=1024)
    world.serve("a", KNOWN)
    world.serve("c", text(4, 700))
    assert len(world.half.donors) == 2
    world.add("long", text(5, 40), 60)
    world.add("b", text(9, 40) + KNOWN + NOVEL, 1)
    for _ in range(40):
        world.step()
    assert world.half.donors.prefills.is_lending
    assert len(world.half.donors) == 2, "the engine is busy: nothing was prefilled, nothing may be evicted for it"
    world.drain()
    check_rest(world)


def test_the_same_passage_in_two_requests_is_prefilled_once(tmp_path: Path) -> None:
    world = blended(tmp_path)
    prompt = text(9, 40) + KNOWN + NOVEL
    world.add("b", prompt, 1)
    world.add("c", prompt, 1)
    world.drain()
    assert len(world.half.donors) == 2
    assert sum(len(commands.prefill.token_ids) for commands in world.commands if commands.prefill) == HEAD_TOKENS + len(
        NOVEL
    )
    check_rest(world)


def test_a_request_that_lacks_blocks_gets_those_that_are_lent(tmp_path: Path) -> None:
    world = blended(tmp_path)
    world.add("long", text(5, 40), 30)
    world.add("b", text(9, 40) + KNOWN + NOVEL, 1)
    for _ in range(5):
        world.step()
    assert world.half.donors.prefills.is_lending
    assert world.scheduler.connector.has_pending_block_frees(), "they come with the next step"
    assert not world.half.donors.prefills.is_lending
    for _ in range(3):
        world.step()
    assert "b" not in world.scheduler.requests
    assert not world.scheduler.connector.has_pending_block_frees(), "nothing is held any longer: the engine may preempt"
    world.drain()
    check_rest(world)


def test_nothing_is_prefilled_while_a_live_request_is_stalled(tmp_path: Path) -> None:
    world = blended(tmp_path)
    world.add("long", text(5, 100), 20)
    world.add("b", text(9, 40) + KNOWN + NOVEL, 1)
    while "b" in world.scheduler.requests and not world.half.donors.prefills.is_lending:
        world.step()
    world.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    world.step()  # without tokens, although a request is alive
    world.flush()
    assert "long" in world.scheduler.requests
    assert world.commands[-1].prefill is None
    world.scheduler.set_pause_state(PauseState.UNPAUSED)
    world.drain()


def test_a_reset_in_the_middle_of_a_prefill_frees_everything(tmp_path: Path) -> None:
    world = blended(tmp_path)
    world.add("b", text(9, 40) + KNOWN + NOVEL, 1)
    while not any(commands.prefill is not None for commands in world.commands):
        world.step()
    world.scheduler.reset_prefix_cache(reset_connector=True)
    world.drain()
    assert len(world.half.donors) == 0
    check_rest(world)


def test_a_small_cache_lends_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=60, host_tokens=4096)
    world.serve("a", KNOWN)
    assert world.serve("b", text(9, 40) + KNOWN + NOVEL)["donor_id"] is None
    assert not any(commands.prefill is not None for commands in world.commands)


def test_the_text_has_a_head_and_fits() -> None:
    prompt = np.arange(1000, dtype=np.uint32)
    novel = [TokenRange(500, 600), TokenRange(700, 800)]
    whole = passage_text(prompt, novel, 10_000).tolist()
    assert whole == [*range(HEAD_TOKENS), *range(500, 600), *range(700, 800)]
    assert passage_text(prompt, novel, 128).tolist() == whole[:128]
