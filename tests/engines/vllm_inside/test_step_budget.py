"""Claims share the engine's token budget of a step: what one step computes is bounded, and every request is served."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engines.vllm_inside.checks import check_rest
from tests.engines.vllm_inside.engine import RequestStatus
from tests.engines.vllm_inside.test_world import text
from tests.engines.vllm_inside.world import World, make_world

from semblend.integration.vllm.step_budget import StepBudget

pytestmark = pytest.mark.engine
MAX = 256
DOCUMENT = text(1, 300)
OPEN: dict[str, Any] = {"max_context_share": 1.0, "min_reuse_ratio": 0.0, "min_inexact_tokens": 0}


def added(load: Any) -> int:
    """What a load computes beside the engine: gaps, and the fraction of its runs that is recomputed."""
    fraction = load.recompute.selection.fraction if load.recompute is not None else 0.0
    return sum(len(gap) for gap in load.compute) + int(fraction * sum(run.length for run in load.runs))


def steps_of(world: World) -> list[tuple[int, list[int]]]:
    """Run to the end; for each step the tokens the engine scheduled, and those each load added."""
    steps = []
    schedule = world.scheduler.schedule

    def counted() -> Any:
        output = schedule()
        loads = output.kv_connector_metadata.loads
        steps.append((output.total_num_scheduled_tokens, [added(load) for load in loads]))
        return output

    world.scheduler.schedule = counted
    world.drain()
    return steps


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("fraction", [0.0, 0.2])
def test_a_step_computes_at_most_the_maximum_and_one_request_s_gaps(
    tmp_path: Path, depth: int, fraction: float
) -> None:
    world = make_world(
        tmp_path,
        blocks=200,
        batch_tokens=MAX,
        depth=depth,
        recompute_fraction=fraction,
        recompute_policy="first",
        **OPEN,
    )
    world.serve("a", DOCUMENT)
    decodes = [world.add(f"d{n}", text(50 + n, 40), 60, capture=False) for n in range(2)]
    world.step()
    world.step()
    for n in range(6):  # gaps before the document, and a tail that the engine computes
        head, tail = 70 + 10 * n, (20, 150, 400)[n % 3]
        world.add(f"b{n}", text(100 + n, head) + DOCUMENT + text(200 + n, tail), 2, capture=False)
        world.add(f"c{n}", text(300 + n, 120), 2, capture=False, reuse=False)
    steps = steps_of(world)
    assert all(request.is_finished() for request in decodes)
    assert sum(len(loads) for _, loads in steps) == 6, "every claim was kept"
    for scheduled, loads in steps:
        assert scheduled + sum(loads) <= MAX + max(loads, default=0)
    alone = [scheduled + sum(loads) for scheduled, loads in steps if len(loads) == 1 and scheduled < MAX // 2]
    assert alone, "a tail that fits is part of the budget"
    assert max(alone) <= MAX
    print(f"largest step: {max(scheduled + sum(loads) for scheduled, loads in steps)} tokens of {MAX}")
    check_rest(world)


def test_a_cold_request_does_not_overtake_one_that_waits_for_room(tmp_path: Path) -> None:
    world = make_world(tmp_path, blocks=200, batch_tokens=MAX, **OPEN)
    world.serve("a", DOCUMENT)
    world.add("prefill", text(5, 700), 1, capture=False)
    world.step()
    world.step()  # 188 of its tokens are left
    blended = world.add("b", text(6, 100) + DOCUMENT + text(7, 20), 2, capture=False)
    cold = world.add("c", text(8, 60), 2, capture=False)
    world.step()
    assert blended.num_computed_tokens == cold.num_computed_tokens == 0, "68 tokens are left, 100 are gaps"
    world.step()
    assert blended.num_computed_tokens > 0
    world.drain()
    assert world.replies["b"]["outcome"] == "backend_materialized_reuse"


def running(tokens: int, computed: int, *, prefill: bool = False) -> Any:
    return SimpleNamespace(
        request_id=f"{tokens}-{computed}",
        status=RequestStatus.RUNNING,
        num_tokens_with_spec=tokens,
        num_output_placeholders=0,
        num_computed_tokens=computed,
        is_prefill_chunk=prefill,
    )


def test_beside_decodes_a_claim_is_cut_to_what_is_left_and_beside_a_prefill_it_waits() -> None:
    budget = StepBudget(100)
    budget.place(running(11, 10), 1)
    budget.place(running(21, 20), 1)
    budget.end_pass()
    assert budget.room_for_claim(120, 10) == 98, "nothing will leave more room than this"
    budget.place(running(400, 340, prefill=True), 0)
    budget.end_pass()
    assert budget.room_for_claim(38, 1) == 38
    budget.claim(38)
    assert not budget.has_room(5), "claims use what the engine believes to be free"
    budget.end_pass()
    assert budget.room_for_claim(39, 1) is None
    assert budget.room_for_claim(1, 1) is None, "later requests wait behind it"
    assert not budget.has_room(1)
    budget.leave("400-340")
    budget.end_pass()
    assert budget.room_for_claim(39, 1) == 98
