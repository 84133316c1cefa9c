"""A background task that dies is logged, its owner is notified, and it runs again."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.waiting import PATIENCE_S

from sembase import kept_task
from sembase.kept_task import KeptTask


def test_a_death_is_logged_and_reported_and_the_task_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        starts, deaths = 0, 0
        third = asyncio.Event()

        async def run() -> None:
            nonlocal starts
            starts += 1
            if starts == 1:
                raise OSError("what a client sent")
            if starts == 2:
                return  # an end without an error is a death too
            third.set()
            await asyncio.Event().wait()

        def died() -> None:
            nonlocal deaths
            deaths += 1

        kept = KeptTask("a task", run, died)
        await asyncio.wait_for(third.wait(), PATIENCE_S)
        assert (deaths, kept.deaths) == (2, 2)
        await kept.stop()
        assert starts == 3

    with caplog.at_level(logging.ERROR, logger="sembase"):
        asyncio.run(scenario())
    logged = [record.__dict__["fields"] for record in caplog.records]
    assert [(each["task"], each["error"]) for each in logged] == [("a task", "OSError"), ("a task", "ended")]
    assert "what a client sent" not in str(logged)


def test_one_that_was_stopped_between_two_lives_stays_dead() -> None:
    async def scenario() -> None:
        starts = 0
        dead = asyncio.Event()

        async def run() -> None:
            nonlocal starts
            starts += 1

        kept = KeptTask("a task", run, dead.set)
        await asyncio.wait_for(dead.wait(), PATIENCE_S)
        await kept.stop()
        await asyncio.sleep(0.15)
        assert starts == 1

    asyncio.run(scenario())


def test_one_that_loses_a_cancellation_is_stopped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_task, "CANCEL_AGAIN_SECONDS", 0.01)

    async def scenario() -> None:
        lost = 0

        async def run() -> None:
            nonlocal lost
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    lost += 1
                    if lost == 3:
                        raise

        kept = KeptTask("a task", run, lambda: None)
        await asyncio.sleep(0)
        await kept.stop()
        assert lost == 3

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))
