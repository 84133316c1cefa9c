"""The router's log names every replica that stops or starts taking requests, once, and never floods."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.clock import Clock
from tests.fakes.router_rig import router_rig
from tests.waiting import PATIENCE_S, until

from semgate.fleet import Endpoint, Fleet
from semgate.router.state.state_log import MAX_LINES, WINDOW_SECONDS, StateLog

DOWN, UP = "replica takes no requests", "replica takes requests again"


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = getattr(record, "fields", {})
    return found


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str | None]]:
    found = [(each.getMessage(), fields_of(each)) for each in caplog.records if each.getMessage() in (DOWN, UP)]
    return [(event, fields["replica"], fields.get("why")) for event, fields in found]


def test_each_change_is_one_line_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    fleet, states = Fleet(clock_s=clock), StateLog(clock)
    fleet.apply([Endpoint("a", "http://h:1"), Endpoint("b", "http://h:2")])
    a, b = fleet

    def noted() -> list[tuple[str, str, str | None]]:
        caplog.clear()
        for _ in range(3):
            states.note(fleet)
        return lines(caplog)

    with caplog.at_level(logging.WARNING, "semgate"):
        assert noted() == []
        a.healthy = False
        assert noted() == [(DOWN, "a", "health checks failed")]
        a.healthy = True
        assert noted() == [(UP, "a", None)]
        for _ in range(3):
            b.fault()
        assert noted() == [(DOWN, "b", "requests failed there; its breaker is open")]
        clock.now = 3.0
        assert b.state() == "half_open"
        assert noted() == [], "still down: one trial request decides"
        b.begin(1).end("ok")
        assert noted() == [(UP, "b", None)]
        b.draining = True
        assert noted() == [(DOWN, "b", "draining")]
        fleet.apply([Endpoint("a", "http://h:1", ready=False)])
        assert noted() == [(DOWN, "a", "discovery reports it as not ready")]
        fleet.apply([Endpoint("a", "http://h:1"), Endpoint("b", "http://h:2")])
        assert noted() == [(UP, "a", None)], "a replica that returns is new"


def test_replicas_that_come_and_go_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    fleet, states = Fleet(clock_s=clock), StateLog(clock)
    fleet.apply([Endpoint(f"r{number}", f"http://h:{number + 1}") for number in range(100)])
    with caplog.at_level(logging.WARNING, "semgate"):
        for number in range(9):
            for each in fleet:
                each.healthy = number % 2 == 1
            states.note(fleet)
        assert len(lines(caplog)) == MAX_LINES
        clock.now = WINDOW_SECONDS
        fleet.find("r0").healthy = True  # type: ignore[union-attr]
        states.note(fleet)
        assert len(lines(caplog)) == MAX_LINES + 1
        assert fields_of(caplog.records[-1])["lines_left_out"] == 900 - MAX_LINES


def test_a_replica_that_dies_is_in_the_routers_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", "b", health_seconds=0.05) as rig:
            await rig.replica("a").die()
            await until(lambda: (DOWN, "a", "health checks failed") in lines(caplog))
            await rig.replica("a").start()
            await until(lambda: (UP, "a", None) in lines(caplog))
            assert {replica for _, replica, _ in lines(caplog)} == {"a"}

    with caplog.at_level(logging.WARNING, "semgate"):
        asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
