"""The passes at start-up, on a clock that only computing moves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.clock import Clock

from semblend.contract import TokenRange
from semblend.integration.core.cost_probe import MAX_CONTEXT, probe
from semblend.plan.reuse_cost import ReuseCost, Work, pass_work

PRICES = Work(0.020, 0.00025, 0.015, 0.0003)  # seconds


class Engine:
    def __init__(self, stalls: Sequence[int] = ()) -> None:
        self.clock = Clock()
        self.calls: list[list[TokenRange]] = []
        self._stalls = stalls

    def compute(self, ranges: Sequence[TokenRange]) -> None:
        if len(self.calls) in self._stalls:
            self.clock.now += 30.0
        self.calls.append(list(ranges))
        self.clock.now += sum(units * price for units, price in zip(pass_work(ranges), PRICES, strict=True))


@pytest.mark.parametrize("stalls", [(), (0, 3, 4, 7)])
@pytest.mark.parametrize("room", [MAX_CONTEXT, 100_000])
def test_the_prices_are_those_of_the_engine_although_it_stalls(room: int, stalls: Sequence[int]) -> None:
    engine = Engine(stalls)
    cost = ReuseCost(probe(engine.compute, room, clock=engine.clock))
    for ranges in ([TokenRange(0, 2_000)], [TokenRange(at, at + 3) for at in range(0, 4_000, 40)]):
        expected = 1e3 * sum(units * price for units, price in zip(pass_work(ranges), PRICES, strict=True))
        assert cost.ms(pass_work(ranges)) == pytest.approx(expected, rel=0.1)
    assert max(part.end for call in engine.calls for part in call) <= MAX_CONTEXT


def test_an_engine_of_one_range_per_pass_is_asked_for_no_more() -> None:
    engine = Engine()
    assert ReuseCost(probe(engine.compute, 2_048, many_rows=False, clock=engine.clock)).is_known
    assert {len(call) for call in engine.calls} == {1}


def test_without_room_nothing_is_computed() -> None:
    engine = Engine()
    assert probe(engine.compute, 100, clock=engine.clock) == ()
    assert not engine.calls
