"""Donors measured while the engine is idle: out of its own cache, once each, and nothing is held or written for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.vllm_inside.checks import check_donors, check_faults, check_rest
from tests.engines.vllm_inside.test_engine import result_of
from tests.engines.vllm_inside.tiny import BLOCK
from tests.engines.vllm_inside.traces import exact_traces
from tests.engines.vllm_inside.world import World, make_world

from semblend.integration.core.donor_book import DonorBook
from semblend.integration.vllm.leaning_passes import MAX_DUE_TOKENS, SLICE_TOKENS, LeaningPasses
from semblend.plan.selection import DEFAULT_POLICY

pytestmark = pytest.mark.engine
HERE = Path(__file__).parent
POLICY = "near_question_or_leaning"


def text(seed: int, tokens: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 512, tokens)]


class Slices(list[Any]):
    """What the workers were commanded to measure, and whether their blocks held it at that moment."""

    def attach(self, world: World) -> Slices:
        for rank in world.ranks:

            def measured(command: Any, cache: Any = rank.cache) -> None:
                end = command.start + len(command.token_ids)
                held = cache.row(command.block_ids, end).tolist()
                tokens = [cache.token_of[value] for value in held]
                assert tokens[command.start :] == command.token_ids.tolist()
                assert held == exact_traces(tokens)
                self.append(command)

            rank.half._measure_leaning = measured  # type: ignore[method-assign]
        return self

    def covered(self) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        for command in self:
            found.setdefault(command.donor_id, []).append((command.start, command.start + len(command.token_ids)))
        return found


def being_measured(folder: Path) -> tuple[World, Slices]:
    """A donor of 600 tokens of which the first slice was measured."""
    world = make_world(folder, blocks=120, host_tokens=4096, recompute_policy=POLICY)
    slices = Slices().attach(world)
    world.add("a", text(1, 600), 1)
    while not slices:
        world.step()
    return world, slices


@pytest.mark.parametrize("depth", [1, 2])
def test_every_donor_is_measured_once_when_nothing_else_is_to_do(tmp_path: Path, depth: int) -> None:
    world = make_world(tmp_path, depth=depth, blocks=120, host_tokens=4096, recompute_policy=POLICY)
    slices = Slices().attach(world)
    donors = [world.serve(f"r{n}", text(n, 300 + 20 * n))["donor_id"] for n in range(3)]
    whole = [(300 + 20 * n) // BLOCK * BLOCK for n in range(3)]
    expected = [[(0, SLICE_TOKENS), (SLICE_TOKENS, end)] for end in whole]
    assert slices.covered() == dict(zip(donors, expected, strict=True))
    assert not world.half.donors.leanings.is_waiting
    for commands in world.commands:
        assert commands.leaning is None or not (commands.loads or commands.prefill or commands.repair)
    check_rest(world)
    check_donors(world)
    check_faults(world)


def test_a_request_that_arrives_comes_first(tmp_path: Path) -> None:
    world, slices = being_measured(tmp_path)
    before = len(slices)
    world.add("b", text(2, 200), 20)
    while "b" not in world.replies:
        world.step()
        assert len(slices) == before or "b" in world.replies
    world.drain()
    assert len(slices) > before, "then the rest is measured"


def test_a_donor_that_left_the_cache_is_not_measured(tmp_path: Path) -> None:
    world, slices = being_measured(tmp_path)
    world.flush()
    assert world.scheduler.kv_cache_manager.reset_prefix_cache()
    before = len(slices)
    world.drain()
    assert len(slices) == before
    assert not world.half.donors.leanings.is_waiting
    check_rest(world)


def test_a_reset_and_lost_commands_end_it(tmp_path: Path) -> None:
    world, slices = being_measured(tmp_path)
    world.half.reset()
    assert not world.scheduler.connector.has_pending_push_work()
    world.drain()
    assert len(slices) == 1


@pytest.mark.parametrize(
    ("ranks", "options"),
    [(1, {}), (1, {"recompute_policy": "question_or_deviation"}), (2, {"recompute_policy": POLICY})],
)
def test_other_deployments_make_no_step_for_it(tmp_path: Path, ranks: int, options: dict[str, Any]) -> None:
    world = make_world(tmp_path, ranks=ranks, blocks=120, host_tokens=4096, **options)
    slices = Slices().attach(world)
    world.serve("a", text(1, 300))
    assert not slices
    assert all(commands.leaning is None for commands in world.commands)


def test_what_is_due_is_bounded_and_the_newest_donors_stay() -> None:
    class Cached:
        def tokens_of(self, donor_id: str) -> int:
            return 10**9

    passes = LeaningPasses(Cached(), DonorBook(0), is_on=True)  # type: ignore[arg-type]
    third = np.zeros(MAX_DUE_TOKENS // 3, np.uint32)
    for number in range(5):
        passes.stored(str(number), third)
    assert list(passes._due) == ["2", "3", "4"]
    passes.stored("long", np.zeros(MAX_DUE_TOKENS + 1, np.uint32))
    assert list(passes._due) == ["2", "3", "4"], "a donor that is too long displaces none"


def test_a_fault_while_measuring_costs_nothing_but_the_leaning(tmp_path: Path) -> None:
    """Traces have no layers to observe: every slice fails."""
    world = make_world(tmp_path, blocks=120, host_tokens=4096, recompute_policy=POLICY)
    document = text(1, 300)
    world.serve("a", document)
    assert any(commands.leaning is not None for commands in world.commands)
    assert world.ranks[0].half._faults
    reply = world.serve("b", text(2, 50) + document + text(3, 20))
    assert reply["outcome"] == "backend_materialized_reuse"
    check_rest(world)


@pytest.mark.slow
def test_the_real_engine_measures_dense_attention_and_writes_nothing(tmp_path: Path) -> None:
    found = result_of(1, "-P", str(HERE / "leaning_tiny.py"), str(tmp_path))
    assert found["error"] < 0.006, "the packed rows are the attention of the model, computed by hand"
    assert found["largest"] > 0.05
    assert found["changed_bytes"] == 0
    assert found["steps"] >= 2
    assert found["selected_by"] == POLICY
    assert found["without"] == DEFAULT_POLICY
