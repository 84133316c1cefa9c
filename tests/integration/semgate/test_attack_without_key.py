"""What a client without a key sends costs no memory, hides no disconnect, and leaves the probes their answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.attacks.processes import SERVED
from tests.attacks.targets import TARGETS
from tests.attacks.without_key import HELD, held, is_departure_seen

pytest.importorskip("fastapi")


@pytest.mark.parametrize("name", SERVED)
def test_attacks_without_a_key_stay_cheap_on_every_listener(name: str, tmp_path: Path) -> None:
    async def act() -> dict[tuple[str, str], str]:
        worked: dict[tuple[str, str], str] = {}
        async with SERVED[name](tmp_path / "run") as served:
            for listener in served.ports:
                for attack in HELD:
                    found = await held(served, listener, attack)
                    if not found.stopped:
                        worked[listener, attack] = str(found)
        return worked

    assert asyncio.run(act()) == {}


@pytest.mark.parametrize("target", TARGETS)
def test_the_engine_sees_a_client_leave_that_sent_a_request_ahead(target: str, tmp_path: Path) -> None:
    async def act() -> bool:
        async with TARGETS[target](tmp_path) as gate:
            return await is_departure_seen(gate)

    assert asyncio.run(act())
