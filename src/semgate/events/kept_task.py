"""A background task that does not die in silence: what to run and what its death means in, a task that runs again out.

Whatever ends it is logged, its owner is told (what the task kept up is not true any more), and it starts again after a
pause that doubles up to ``LONGEST_PAUSE_SECONDS``. Called by the feeds, on the running loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from semgate.logs import log

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 60.0  # one that ran this long begins again with the first pause


class KeptTask:
    """``run`` until ``stop``. ``died`` hears of each death, before the next start."""

    def __init__(self, name: str, run: Callable[[], Coroutine[Any, Any, None]], died: Callable[[], None]) -> None:
        self.deaths = 0
        self._name = name
        self._run = run
        self._died = died
        self._loop = asyncio.get_running_loop()
        self._pause_s = FIRST_PAUSE_SECONDS
        self._is_stopped = False
        self._again: asyncio.TimerHandle | None = None
        self._task = self._start()

    async def stop(self) -> None:
        self.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def cancel(self) -> asyncio.Task[None]:
        """Never to run again; the task that is ending."""
        self._is_stopped = True
        if self._again is not None:
            self._again.cancel()
        self._task.cancel()
        return self._task

    def _start(self) -> asyncio.Task[None]:
        self._began_s = self._loop.time()
        task = self._loop.create_task(self._run(), name=self._name)
        task.add_done_callback(self._ended)
        return task

    def _start_again(self) -> None:
        self._again = None
        self._task = self._start()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._is_stopped:
            return
        self.deaths += 1
        if self._loop.time() - self._began_s >= STEADY_SECONDS:
            self._pause_s = FIRST_PAUSE_SECONDS
        # first, so that it happens even if the owner cannot be told
        self._again = self._loop.call_later(self._pause_s, self._start_again)
        log(
            logging.ERROR,
            "background task died",
            task=self._name,
            error="ended" if error is None else type(error).__name__,
            where=_where(error),
            again_in_s=self._pause_s,
        )
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_SECONDS)
        self._died()


def _where(error: BaseException | None) -> str | None:
    """File and line alone: the text of an error may hold what a client sent."""
    trace = None if error is None else error.__traceback__
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
