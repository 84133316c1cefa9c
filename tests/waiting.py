"""Waiting for a condition. The limit only ends a hang: no test's verdict depends on how long anything took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 300.0
_STEP_S: Final = 0.01


def wait_until(
    condition: Callable[[], object], otherwise: str = "the condition never held", *, patience_s: float = PATIENCE_S
) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(_STEP_S)


async def until(
    condition: Callable[[], object], otherwise: str = "the condition never held", *, patience_s: float = PATIENCE_S
) -> None:
    """The same inside an event loop."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, otherwise
        await asyncio.sleep(_STEP_S)
