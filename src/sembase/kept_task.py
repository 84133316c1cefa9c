"""A background task that is restarted when it fails: a coroutine function and a failure callback in, a task out.

Any end of the task is logged, its owner is notified (the state the task maintained may be wrong now), and the task
starts again after a pause that doubles up to ``MAX_PAUSE_SECONDS``. Used on the running loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

log: Final = logging.getLogger("sembase")
FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 30.0
CANCEL_AGAIN_SECONDS: Final = 2.0
STEADY_SECONDS: Final = 60.0  # after this long a run counts as healthy, and the pause starts small again


class KeptTask:
    """``run`` until ``stop``. ``died`` is called after each failure, before the next start."""

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
        """Cancels again while the task runs: ``asyncio.wait_for`` of Python 3.11, which clients of stores call, loses a
        cancellation that comes in the moment in which what it waits for ends."""
        task = self.cancel()
        while not (await asyncio.wait((task,), timeout=CANCEL_AGAIN_SECONDS))[0]:
            task.cancel()

    def cancel(self) -> asyncio.Task[None]:
        """Do not restart; returns the task that is ending."""
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
        # first, so that it happens even if the callback raises
        self._again = self._loop.call_later(self._pause_s, self._start_again)
        failure = {
            "task": self._name,
            "error": "ended" if error is None else type(error).__name__,
            "where": _where(error),
            "again_in_s": self._pause_s,
        }
        log.error("background task died", extra={"fields": failure})
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_SECONDS)
        self._died()


def _where(error: BaseException | None) -> str | None:
    """File and line only: the text of an error may contain what a client sent."""
    trace = None if error is None else error.__traceback__
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
