"""Every hostile HTTP request gets its right status, and reaches an engine only where it is a valid one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.attacks.hostile import REQUESTS, send
from tests.attacks.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_hostile_requests(target: str, tmp_path: Path) -> None:
    async def act() -> dict[str, object]:
        wrong: dict[str, object] = {}
        async with TARGETS[target](tmp_path) as gate:
            for each in REQUESTS:
                status, closed = await send(gate.port, each)
                reached = len(gate.seen())
                if status not in each.statuses or reached != each.reaches or closed != each.closed:
                    wrong[each.name] = (status, closed, reached)
        return wrong

    assert asyncio.run(act()) == {}


def test_no_name_is_used_twice() -> None:
    assert len({each.name for each in REQUESTS}) == len(REQUESTS) >= 42
