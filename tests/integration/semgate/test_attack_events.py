"""Two messages of ``make attack-gate`` to a router process: it holds what it held, and continues with the next."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.attacks.events import MESSAGES, sent_to_a_router


@pytest.mark.parametrize("name", ["event: a key that is not UTF-8", "event: 8 MiB of empty maps"])
def test_a_hostile_event_costs_itself_only(name: str, tmp_path: Path) -> None:
    found = asyncio.run(sent_to_a_router(MESSAGES[name], tmp_path))
    assert found.is_harmless, str(found)
