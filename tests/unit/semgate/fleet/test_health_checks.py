from __future__ import annotations

import asyncio

import pytest

from sembase.errors import ConfigurationError
from semgate.fleet import Endpoint, Fleet, HealthChecks, HealthOptions


def fleet_of(count: int) -> Fleet:
    fleet = Fleet()
    fleet.apply([Endpoint(f"replica-{number}", f"http://h:{number + 1}") for number in range(count)])
    return fleet


def test_it_takes_failures_in_a_row_to_leave_and_passes_to_return() -> None:
    fleet = fleet_of(1)
    (replica,) = fleet
    answers = iter([False, False, True, False, False, False, True, True])
    seen = []

    async def probe(origin: str) -> bool:
        assert origin == "http://h:1"
        return next(answers)

    async def run() -> None:
        checks = HealthChecks(fleet, probe, HealthOptions(fails_to_leave=3, passes_to_return=2))
        for _ in range(8):
            await checks.check_all()
            seen.append(replica.healthy)

    asyncio.run(run())
    assert seen == [True, True, True, True, True, False, False, True]


@pytest.mark.parametrize("error", [ConnectionRefusedError(), TimeoutError()])
def test_errors_and_silence_count_as_no(error: OSError) -> None:
    fleet = fleet_of(2)

    async def probe(origin: str) -> bool:
        if origin.endswith(":1"):
            raise error
        await asyncio.Event().wait()
        return True

    async def run() -> None:
        options = HealthOptions(timeout_s=0.01, fails_to_leave=1)
        await HealthChecks(fleet, probe, options).check_all()

    asyncio.run(run())
    assert [each.view().state for each in fleet] == ["unhealthy", "unhealthy"]


def test_only_a_few_are_asked_at_a_time_and_the_task_ends_when_cancelled() -> None:
    fleet, now, most = fleet_of(20), 0, 0

    async def probe(origin: str) -> bool:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return True

    async def run() -> None:
        task = asyncio.create_task(HealthChecks(fleet, probe, HealthOptions(at_a_time=4, interval_s=60.0)).run())
        while most == 0 or now:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert most == 4


@pytest.mark.parametrize("wrong", [{"interval_s": 0.0}, {"fails_to_leave": 0}, {"at_a_time": 0}])
def test_impossible_checks_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        HealthOptions(**wrong)
