"""Ctrl-C and SIGTERM end a live run in order: requests in flight are dropped, rows already written stay."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class InterruptedRunError(Exception):
    """Somebody asked the run to end. The message names the signal."""


def run_interruptibly(work: Coroutine[Any, Any, T]) -> T:
    """Runs ``work`` to its end; a signal cancels it and raises ``InterruptedRunError`` once it has cleaned up."""
    return asyncio.run(_watched(work))


async def _watched(work: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    heard: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        heard.append(number)
        task.cancel()

    for number in _SIGNALS:
        # Not every platform, nor a thread other than the main one, can do this: Ctrl-C works there without it.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if heard:
            raise InterruptedRunError(heard[0].name) from None
        raise
    finally:
        for number in _SIGNALS:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(number)
