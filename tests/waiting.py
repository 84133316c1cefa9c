"""Waiting for a condition. The limit only ends a hang: it is a minute, and no test's verdict depends on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 60.0
_STEP_S: Final = 0.005


def wait_until(condition: Callable[[], bool], otherwise: str = "the condition never held") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(_STEP_S)


async def until(condition: Callable[[], bool], otherwise: str = "the condition never held") -> None:
    """The same inside an event loop."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, otherwise
        await asyncio.sleep(_STEP_S)
