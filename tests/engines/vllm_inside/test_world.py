"""The whole connector under the engine's own scheduler: the stories that must come out right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.engines.vllm_inside.checks import PublicBlocks, check_exact_cache, check_requests, check_rest
from tests.engines.vllm_inside.engine import RequestStatus
from tests.engines.vllm_inside.world import make_world

from semblend.integration.vllm import loads

pytestmark = pytest.mark.engine


def text(seed: int, tokens: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 512, tokens)]


@pytest.mark.parametrize(("ranks", "depth"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_a_document_behind_a_new_instruction_is_blended(tmp_path: Path, ranks: int, depth: int) -> None:
    world = make_world(tmp_path, ranks=ranks, depth=depth)
    document = text(1, 300)
    first = world.serve("a", document)
    assert first["outcome"] == "cold_fallback"
    assert first["donor_id"] in world.half.donors
    second = world.serve("b", text(2, 50) + document + text(3, 20))
    assert second["outcome"] == "backend_materialized_reuse"
    assert second["reused_tokens"] == 292
    assert second["computed_tokens"] == 58
    third = world.serve("c", text(2, 50) + document + text(3, 20))
    assert third["exact_prefix_tokens"] == 0, "nothing of a blended request is a public block"


@pytest.mark.parametrize("ranks", [1, 2])
def test_chosen_tokens_are_computed_on_every_rank(tmp_path: Path, ranks: int) -> None:
    chosen = 73
    world = make_world(tmp_path, ranks=ranks, recompute_policy="first", recompute_fraction=0.25)
    document = text(1, 300)
    world.serve("a", document)
    reply = world.serve("b", text(2, 50) + document + text(3, 20))
    assert reply["outcome"] == "backend_materialized_reuse"
    assert (reply["reused_tokens"], reply["computed_tokens"]) == (292 - chosen, 58 + chosen)
    assert reply["compute_share"] == 0.25
    assert not any(report.load_faults for report in world.reports)


def test_more_to_choose_than_a_step_computes_is_left_to_the_engine(tmp_path: Path) -> None:
    world = make_world(tmp_path, recompute_policy="first", batch_tokens=256)
    document = text(1, 300)
    world.serve("a", document)
    reply = world.serve("b", text(2, 50) + document + text(3, 20), recompute_fraction=0.9, capture=False)
    assert (reply["outcome"], reply["reason"]) == ("cold_fallback", "capacity")


def test_a_full_store_makes_room_without_losing_the_newcomer(tmp_path: Path) -> None:
    world = make_world(tmp_path, host_tokens=1024, blocks=80)
    for n in range(6):
        reply = world.serve(f"r{n}", text(n, 400))
        assert reply["donor_id"] in world.half.donors, f"donor {n} is stored once its request is over"
        assert all(not report.capture_faults for report in world.reports)
    assert len(world.half.donors) == 2


def test_a_capture_that_was_given_up_is_not_promised_to_the_client(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=40, cached_donors=False)
    reply = world.serve("a", text(1, 400))  # 13 of 40 blocks: too many to wait for their copy
    assert len(world.half.donors) == 0
    assert reply["donor_id"] is None
    assert not world.half.donors._capturing, "nothing of it is kept"


def test_a_reset_while_a_donor_s_request_still_answers_leaves_no_ghost(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=80)
    document = text(1, 300)
    world.add("a", document, 200)
    while not len(world.half.donors):
        world.step()
    assert "a" in world.scheduler.requests, "the donor's own request is still being answered"
    world.scheduler.reset_prefix_cache(reset_connector=True)
    assert len(world.scheduler.connector._planner) == len(world.half.donors) == 0
    reply = world.serve("b", text(2, 50) + document + text(3, 20))
    assert reply["outcome"] == "cold_fallback"
    assert not any(report.load_faults for report in world.reports)


def test_a_preempted_request_keeps_the_donor_it_has_become(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=80)
    world.add("a", text(1, 300), 200)
    while not len(world.half.donors):
        world.step()
    world.scheduler.reset_prefix_cache(reset_running_requests=True)
    for _ in range(5):
        world.step()
    assert len(world.scheduler.connector._planner) == len(world.half.donors) == 1
    world.drain()
    assert world.replies["a"]["donor_id"] in world.half.donors


def test_a_request_preempted_after_a_failed_load_does_not_find_its_unwritten_blocks(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=80)
    document = text(1, 300)
    world.serve("a", document)
    request = world.add("b", text(2, 50) + document + text(3, 20), 20)
    world.ranks[0].fail_loads = world.ranks[0].forward.fails = True
    world.step()
    world.flush()
    assert any("b" in report.load_faults for report in world.reports)
    world.scheduler.running.remove(request)
    world.scheduler._preempt_request(request, 0.0)
    while not request.is_finished():
        world.step()
        world.flush()
        check_requests(world)
    world.drain()


@pytest.mark.parametrize("outputs", [1, 6])
def test_with_steps_in_flight_a_claim_neither_loaded_nor_computed_fails_its_request_alone(
    tmp_path: Path, outputs: int
) -> None:
    world = make_world(tmp_path, blocks=80, depth=2)
    document = text(1, 300)
    world.serve("a", document)
    prompt = text(2, 50) + document + text(3, 20)
    request, neighbour = world.add("b", prompt, outputs), world.add("n", text(4, 40), 20)
    world.ranks[0].fail_loads = world.ranks[0].forward.fails = True
    world.drain()
    assert request.status == RequestStatus.FINISHED_ERROR
    assert not request.num_output_tokens
    assert neighbour.status == RequestStatus.FINISHED_LENGTH_CAPPED
    public = PublicBlocks()
    public.learn(request)
    check_exact_cache(world, public)
    check_rest(world)
    assert world.serve("c", prompt, outputs)["outcome"] == "backend_materialized_reuse"


def test_the_tokens_in_flight_of_such_a_request_that_is_preempted_are_dropped(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=80, depth=2)
    document = text(1, 300)
    world.serve("a", document)
    request = world.add("b", text(2, 50) + document + text(3, 20), 20)
    world.ranks[0].fail_loads = world.ranks[0].forward.fails = True
    world.send()
    scheduler = world.scheduler
    scheduler.running.remove(request)
    scheduler._preempt_request(request, 0.0, drop_stale_output=scheduler.requires_kv_delivery)
    world.flush()
    assert any("b" in report.load_faults for report in world.reports)
    assert not request.num_output_tokens, "sampled from KV that was never written"
    while not request.is_finished():
        world.step()
        world.flush()
        check_requests(world)
    assert request.num_output_tokens == 20
    world.drain()
    check_rest(world)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("outputs", [1, 6])
def test_a_claim_that_cannot_be_loaded_is_computed_and_not_called_reuse(
    tmp_path: Path, depth: int, ranks: int, outputs: int
) -> None:
    """Also for answers of one token, which end before the engine passes on the report of their step."""
    world = make_world(tmp_path, blocks=80, depth=depth, ranks=ranks)
    document = text(1, 300)
    world.serve("a", document)
    prompt = text(2, 50) + document + text(3, 20)
    world.add("b", prompt, outputs)
    world.ranks[-1].fail_loads = True
    world.step()
    world.flush()
    world.drain()
    reply = world.replies["b"]
    assert (reply["outcome"], reply["reason"]) == ("backend_declined_reuse", "internal_error")
    assert (reply["reused_tokens"], reply["computed_tokens"], reply["runs"]) == (0, 350, [])
    assert not any(report.load_faults for report in world.reports)
    assert world.serve("c", prompt, outputs)["outcome"] == "backend_materialized_reuse"


def test_hashes_of_generated_blocks_are_public_again_when_a_claim_is_void(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=80)
    document = text(1, 300)
    world.serve("a", document)
    request = world.add("b", text(2, 50) + document + text(3, 20), 100)
    public = PublicBlocks()
    public.learn(request)
    while request.num_output_tokens < 80:
        world.step()
    assert world.half._private.holds("b")
    world.scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
    world.step()
    assert not world.half._private.holds("b")
    assert all(bytes(block_hash) in public.content for block_hash in request.block_hashes)
    world.drain()
    check_exact_cache(world, public)


@pytest.mark.parametrize("broken", ["provenance", "emit"])
def test_a_fault_at_the_end_of_a_request_releases_its_blocks_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The engine asserts that a released request exists: one release too many takes it down."""
    world = make_world(tmp_path, blocks=80)
    target = world.scheduler.connector._half

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("injected")

    if broken == "provenance":
        monkeypatch.setattr(loads, "provenance", fail)
    else:
        monkeypatch.setattr(target, "_emit", fail)
    world.add("a", text(1, 300), 1)
    world.drain()
    assert not world.scheduler.requests
    assert not target._records
    monkeypatch.undo()
    assert world.serve("b", text(2, 300))["outcome"] == "cold_fallback"


def test_commands_that_break_release_nothing_twice(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=80)
    world.add("a", text(1, 300), 1)
    while "a" in world.scheduler.requests:
        world.step()  # the last of them releases the blocks of a copied request
    half = world.half
    commands = half.commands

    def broken(*_: object, **__: object) -> None:
        half.commands = commands
        raise OSError("injected")

    half.commands = broken
    reply = world.serve("b", text(2, 300))
    assert reply["outcome"] == "cold_fallback"
    check_exact_cache(world, PublicBlocks())
