"""Declines by time in the engine's own scheduler, with workers whose clock only computing moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.clock import Clock
from tests.engines.vllm_inside.tiny import BLOCK
from tests.engines.vllm_inside.world import World, make_world

from semblend.contract import TokenRange
from semblend.integration.core.cost_probe import probe
from semblend.integration.vllm import worker_half
from semblend.plan.reuse_cost import Timing, Work, pass_work

pytestmark = pytest.mark.engine

DOCUMENT = Random(1).choices(range(90), k=12 * BLOCK)
# Seconds: 0.5 per pass and 0.01 per token, so a pass of its own for a short gap costs 50 tokens.
PRICES = Work(passes=0.5, tokens=0.01)


def seconds(work: Work) -> float:
    return sum(units * price for units, price in zip(work, PRICES, strict=True))


def probed() -> tuple[Timing, ...]:
    clock = Clock()

    def compute(ranges: Sequence[TokenRange]) -> None:
        clock.now += seconds(pass_work(ranges))

    return probe(compute, 1_024, clock=clock)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(worker_half, "time", SimpleNamespace(perf_counter=made))
    return made


def timed(world: World, clock: Clock) -> World:
    """Its forward passes move the clock."""
    for rank in world.ranks:
        sparse, engine = rank.forward.compute, rank.cache.forward

        def compute(block_ids: Any, ranges: Any, *rest: Any, run: Any = sparse, **named: Any) -> Any:
            clock.now += seconds(pass_work(ranges))
            return run(block_ids, ranges, *rest, **named)

        def forward(table: Any, start: int, tokens: Any, run: Any = engine) -> Any:
            clock.now += seconds(pass_work([TokenRange(start, start + len(tokens))]))
            return run(table, start, tokens)

        rank.forward.compute, rank.cache.forward = compute, forward  # type: ignore[assignment, method-assign]
    return world


@pytest.mark.parametrize(("reused", "outcome"), [(12, "backend_materialized_reuse"), (2, "cold_fallback")])
def test_a_plan_is_served_where_it_saves_time(tmp_path: Path, clock: Clock, reused: int, outcome: str) -> None:
    options: dict[str, Any] = {"min_run_tokens": BLOCK, "min_reuse_ratio": 0.01, "max_context_share": 1.0}
    world = timed(make_world(tmp_path, probe=probed(), **options), clock)
    world.serve("donor", DOCUMENT, capture=True)
    reply = world.serve("same", [90] * 20 + DOCUMENT[: reused * BLOCK] + [91] * 60, capture=False)
    assert reply["outcome"] == outcome
    assert reply["reason"] == (None if reused == 12 else "not_worth")


def test_a_ratio_of_zero_asks_for_reuse_at_any_price(tmp_path: Path, clock: Clock) -> None:
    options: dict[str, Any] = {"min_run_tokens": BLOCK, "min_reuse_ratio": 0.0, "max_context_share": 1.0}
    world = timed(make_world(tmp_path, probe=probed(), **options), clock)
    world.serve("donor", DOCUMENT, capture=True)
    reply = world.serve("same", [90] * 20 + DOCUMENT[: 2 * BLOCK] + [91] * 60, capture=False)
    assert reply["outcome"] == "backend_materialized_reuse"


def test_steps_and_plans_are_timed_and_teach_what_they_cost(tmp_path: Path, clock: Clock) -> None:
    world = timed(make_world(tmp_path, probe=probed(), min_reuse_ratio=0.01), clock)
    world.serve("donor", DOCUMENT, capture=True)
    timings = [report.timed for report in world.reports if report.timed is not None]
    assert sum(work.tokens for work, _ in timings) == len(DOCUMENT)
    assert all(ms == pytest.approx(1e3 * seconds(work)) for work, ms in timings)
    for serial in range(60):  # loads became slow here
        before = world.half._cost.ms(Work(loaded=100.0, runs=1.0))
        clock_of_load = world.ranks[0].half._transfers.load

        def slow(*given: Any, run: Any = clock_of_load, **named: Any) -> Any:
            clock.now += 20.0
            return run(*given, **named)

        world.ranks[0].half._transfers.load = slow  # type: ignore[method-assign]
        reply = world.serve(str(serial), [90, serial] * 10 + DOCUMENT, capture=False)
        world.ranks[0].half._transfers.load = clock_of_load  # type: ignore[method-assign]
        if reply["reason"] == "not_worth":
            break
        assert world.half._cost.ms(Work(loaded=100.0, runs=1.0)) > before
    assert reply["reason"] == "not_worth"


def test_without_a_probe_no_step_is_timed(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.serve("donor", DOCUMENT, capture=True)
    assert not any(commands.timed for commands in world.commands)
    assert not any(report.timed for report in world.reports)
