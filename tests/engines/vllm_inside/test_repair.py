"""Repair under the engine's own scheduler and block pool: what it publishes is exact, whatever happens meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.vllm_inside.checks import PublicBlocks, check_donors, check_exact_cache, check_rest, check_silence
from tests.engines.vllm_inside.repair_schedules import play
from tests.engines.vllm_inside.tiny import BLOCK
from tests.engines.vllm_inside.world import World, make_world, sequence

from semblend.contract import FaultContained
from semblend.integration.core import repair_schedule
from semblend.integration.core.repair_schedule import STEP_TOKENS
from semblend.integration.vllm import repair
from semblend.integration.vllm.private_blocks import PrivateBlocks
from semblend.integration.vllm.repair import RepairJob, Repairs

pytestmark = pytest.mark.engine
BLOCKS = 240


def text(seed: int, tokens: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 512, tokens)]


HISTORY = text(1, 500)
OLD_HEAD, NEW_HEAD = text(2, 40), text(3, 40)


def session(tmp_path: Path, **options: Any) -> World:
    """A world in which a session with the old head was served."""
    world = make_world(tmp_path, **{"blocks": BLOCKS, "host_tokens": 4096, "repair": "likely", **options})
    world.serve("before", OLD_HEAD + HISTORY)
    assert world.replies["before"]["donor_id"] in world.half.donors
    world.events.clear()
    return world


def step_until(world: World, holds: Callable[[], bool]) -> None:
    for _ in range(400):
        if holds():
            return
        world.step()
    raise AssertionError("it does not happen")


def has_begun(world: World) -> bool:
    return any(commands.repair is not None for commands in world.commands)


def being_repaired(world: World) -> list[str]:
    return [job.request_id for job in world.half.repairs._jobs.values()]


def break_prefix(world: World, outputs: int = 20) -> tuple[Any, PublicBlocks]:
    """The turn after the break, with everything that it may publish."""
    request = world.add("broken", NEW_HEAD + HISTORY + text(4, 30), outputs)
    public = PublicBlocks()
    public.learn(request)
    return request, public


@pytest.mark.parametrize(("ranks", "depth"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_the_turn_after_a_blended_one_is_an_exact_hit(tmp_path: Path, ranks: int, depth: int) -> None:
    world = session(tmp_path, ranks=ranks, depth=depth)
    request, public = break_prefix(world)
    world.drain()
    assert world.replies["broken"]["outcome"] == "backend_materialized_reuse"
    check_exact_cache(world, public)
    check_silence(world, public)
    everything = sequence(request, 570 + 20)
    reply = world.serve("next", everything + text(5, 40))
    stock = (len(everything) - 1) // BLOCK * BLOCK  # the last token's KV was never computed
    assert reply["exact_prefix_tokens"] == stock
    check_donors(world)
    check_rest(world)


def test_without_repair_the_next_turn_blends_again(tmp_path: Path) -> None:
    world = session(tmp_path, repair="off")
    request, _ = break_prefix(world)
    world.drain()
    reply = world.serve("next", sequence(request, 590) + text(5, 40))
    assert reply["exact_prefix_tokens"] == 0
    assert reply["outcome"] == "backend_materialized_reuse"


def test_slices_are_bounded_and_run_in_idle_steps(tmp_path: Path) -> None:
    world = session(tmp_path)
    break_prefix(world, outputs=1)
    world.add("long", text(6, 60), 50)
    world.drain()
    slices = [(n, c.repair) for n, c in enumerate(world.commands) if c.repair is not None]
    assert slices
    assert all(len(part.token_ids) <= STEP_TOKENS for _, part in slices)
    last_answer = max(n for n, c in enumerate(world.commands) if c.loads)
    assert slices[0][0] > last_answer + 40, "the running request's tokens came first"


def test_a_busy_engine_repairs_in_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_schedule, "BUSY_STEPS_PER_SLICE", 10)
    world = session(tmp_path)
    break_prefix(world, outputs=1)
    world.add("long", text(6, 60), 95)
    step_until(world, lambda: "long" not in world.scheduler.requests)
    slices = [n for n, commands in enumerate(world.commands) if commands.repair is not None]
    assert len(slices) >= 3
    assert all(later - earlier >= 10 for earlier, later in pairwise(slices))


def test_the_newest_answer_is_repaired_first(tmp_path: Path) -> None:
    """Two sessions break one after the other; the later one is the likelier to return soon."""
    world = session(tmp_path)
    world.add("broken", NEW_HEAD + HISTORY + text(4, 30), 5)
    step_until(world, lambda: has_begun(world))
    world.add("newer", text(8, 40) + HISTORY + text(9, 30), 5)
    step_until(world, lambda: "newer" in being_repaired(world))
    seen = len(world.commands)
    world.drain()
    order = [c.repair.request_id for c in world.commands[seen:] if c.repair is not None]
    assert {"broken", "newer"} == set(order)
    assert order.index("broken") > len(order) - 1 - order[::-1].index("newer"), "all slices of the newer come first"
    check_rest(world)


@pytest.mark.parametrize("full", ["jobs", "blocks"])
def test_an_older_repair_makes_room_for_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str) -> None:
    world = session(tmp_path)
    _, public = break_prefix(world, outputs=5)
    step_until(world, lambda: bool(len(world.half.repairs)))
    if full == "jobs":
        monkeypatch.setattr(repair, "MAX_JOBS", 1)
    else:
        monkeypatch.setattr(repair, "MAX_HELD_FRACTION", 1.5 * world.half.repairs.held_blocks / BLOCKS)
    newer = world.add("newer", text(8, 40) + HISTORY + text(9, 30), 5)
    public.learn(newer)
    step_until(world, lambda: "newer" in being_repaired(world))
    assert being_repaired(world) == ["newer"]
    world.drain()
    check_exact_cache(world, public)
    reply = world.serve("next", sequence(newer, 575) + text(5, 40))
    assert reply["exact_prefix_tokens"] == 574 // BLOCK * BLOCK
    check_rest(world)


def test_partial_repair_counts(tmp_path: Path) -> None:
    world = session(tmp_path)
    request, public = break_prefix(world)
    step_until(world, lambda: has_begun(world))
    world.step()
    world.flush()
    world.half.lacks_blocks()
    world.drain()
    check_exact_cache(world, public)
    reply = world.serve("next", sequence(request, 590) + text(5, 40))
    assert 0 < reply["exact_prefix_tokens"] < 576
    check_rest(world)


def test_a_slice_that_fails_ends_the_repair(tmp_path: Path) -> None:
    emitted: list[Any] = []
    world = session(tmp_path, emit=emitted.append)
    _, public = break_prefix(world)
    step_until(world, lambda: has_begun(world))
    world.ranks[0].forward.fails = True
    world.drain()
    check_exact_cache(world, public)
    check_rest(world)
    faults = [event for event in emitted if isinstance(event, FaultContained)]
    assert [(fault.request_id, fault.stage) for fault in faults] == [("broken", "repair")]


def test_a_request_that_waits_for_blocks_gets_them(tmp_path: Path) -> None:
    world = session(tmp_path, blocks=80)
    _, public = break_prefix(world)
    step_until(world, lambda: bool(len(world.half.repairs)))
    held = world.half.repairs.held_blocks
    assert held
    for n in range(3):
        world.add(f"large{n}", text(7 + n, 900), 90)  # 31 blocks each: three need more than repairs leave
    step_until(world, lambda: not world.half.repairs.held_blocks)
    assert any(f"large{n}" in world.scheduler.requests for n in range(3)), "they did not wait for each other"
    check_exact_cache(world, public)
    world.drain()
    assert not world.half.repairs.held_blocks
    check_rest(world)


def test_a_later_turn_replaces_the_repair_of_an_earlier_one(tmp_path: Path) -> None:
    world = session(tmp_path)
    request, _ = break_prefix(world)
    step_until(world, lambda: bool(len(world.half.repairs)))
    later = world.add("next", sequence(request, 590) + text(5, 40), 3)
    step_until(world, later.is_finished)
    assert [job.request_id for job in world.half.repairs._jobs.values()] == ["next"]
    world.drain()
    check_rest(world)


def test_a_reset_ends_repairs(tmp_path: Path) -> None:
    world = session(tmp_path)
    break_prefix(world)
    step_until(world, lambda: bool(len(world.half.repairs)))
    world.scheduler.reset_prefix_cache(reset_connector=True)
    assert not len(world.half.repairs)
    world.drain()
    check_rest(world)


def test_sessions_that_do_not_come_back_are_not_repaired(tmp_path: Path) -> None:
    world = session(tmp_path)
    returns = world.half.repairs._schedule._returns
    now = [1e9]
    returns._clock = lambda: now[0]
    for n in range(200):
        returns.answered(n.to_bytes(4, "big"), "length")
        now[0] += 10.0
    break_prefix(world)
    world.drain()
    assert not has_begun(world)


def play_all(seeds: Iterable[int]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for seed in seeds:
        play(seed, counted, every=1)
    return counted


def test_random_schedules_publish_nothing_inexact() -> None:
    counted = play_all(range(12))
    assert counted["repaired slices"] >= 20
    assert counted["blended"] >= 10


def test_a_preempted_request_gets_the_blocks_that_a_repair_holds() -> None:
    """In schedule 270 a request is preempted while a repair holds blocks that it needs to run again."""
    assert play_all([270])["schedules"] == 1


@pytest.mark.parametrize("mutation", ["slices that were only sent", "a slice that failed", "hashes before the end"])
def test_the_schedules_find_a_law_that_is_broken(monkeypatch: pytest.MonkeyPatch, mutation: str) -> None:
    if mutation == "slices that were only sent":
        publish = Repairs._publish

        def too_early(self: Repairs, job: RepairJob, manager: Any) -> None:
            job.exact = min(job.exact + STEP_TOKENS, len(job.tokens))
            publish(self, job, manager)

        monkeypatch.setattr(Repairs, "_publish", too_early)
    elif mutation == "a slice that failed":
        monkeypatch.setattr(Repairs, "failed", lambda self, number: None)
    else:
        monkeypatch.setattr(PrivateBlocks, "uncache", lambda *_: None)
    with pytest.raises((AssertionError, IndexError)):
        play_all(range(60))
