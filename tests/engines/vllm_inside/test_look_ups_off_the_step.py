"""Long look-ups under the engine's own scheduler: the request waits, its neighbours do not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.engines.vllm_inside.checks import check_rest
from tests.engines.vllm_inside.test_world import text
from tests.engines.vllm_inside.world import World, make_world

from semblend.integration.vllm import open_claims

pytestmark = pytest.mark.engine
LONG_S = 120.0  # only to fail instead of hanging
DOCUMENT = text(1, 300)
LONG = text(2, 50) + DOCUMENT + text(3, 20)


class Gate:
    """Holds every look-up of the thread until it is opened."""

    def __init__(self, world: World) -> None:
        self.open = threading.Event()
        self._answer = world.half._claims._thread._answer
        world.half._claims._thread._answer = self

    def __call__(self, record: Any, boundary: int) -> Any:
        assert self.open.wait(LONG_S)
        return self._answer(record, boundary)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = make_world(tmp_path, blocks=80)
    made.serve("a", DOCUMENT)
    monkeypatch.setattr(open_claims, "MAX_INLINE_TOKENS", 200)
    yield made
    made.scheduler.connector.shutdown()
    made.pool.shutdown()


def ready(world: World, request_id: str) -> None:
    assert world.half._records[request_id].pending.ready.wait(LONG_S)


def test_a_request_waits_for_its_look_up_and_its_neighbours_do_not(world: World) -> None:
    gate = Gate(world)
    long, short = world.add("b", LONG, 3), world.add("c", text(4, 100), 3)
    for _ in range(6):
        world.step()
    assert short.is_finished(), "a request does not wait for the look-up of another"
    assert long.num_computed_tokens == 0
    gate.open.set()
    ready(world, "b")
    world.drain()
    assert world.replies["b"]["outcome"] == "backend_materialized_reuse"
    assert world.replies["b"]["reused_tokens"] == 292
    check_rest(world)


def test_the_answer_of_an_aborted_request_is_dropped(world: World) -> None:
    gate = Gate(world)
    world.add("b", LONG, 3)
    world.step()
    pending = world.half._records["b"].pending
    world.abort("b")
    assert pending.is_dropped
    gate.open.set()
    world.drain()
    check_rest(world)


def test_a_donor_evicted_during_the_look_up_is_not_claimed(world: World) -> None:
    gate = Gate(world)
    world.add("b", LONG, 3)
    world.step()
    gate.open.set()
    ready(world, "b")
    world.scheduler.reset_prefix_cache(reset_connector=True)
    world.step()
    assert not world.half._loads
    ready(world, "b")  # asked again
    world.drain()
    assert world.replies["b"]["outcome"] == "cold_fallback"
    assert not any(report.load_faults for report in world.reports)


def test_a_fault_of_the_look_up_is_contained(world: World) -> None:
    gate = Gate(world)
    gate._answer = lambda *_: 1 / 0
    world.add("b", LONG, 3)
    world.step()
    gate.open.set()
    ready(world, "b")
    world.drain()
    assert world.replies["b"]["reason"] == "internal_error"
    check_rest(world)
