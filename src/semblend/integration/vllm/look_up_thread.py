"""Look-ups of long prompts on a thread of their own, so that they do not delay the step of other requests.

The hot loops of a look-up run without the interpreter's lock. Requests in, answers out, in order; at most
``QUEUE_LIMIT`` wait.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from semblend.contract import Decline, ReusePlan
    from semblend.integration.vllm.request_record import VllmRequest

QUEUE_LIMIT: Final = 256
MAX_INLINE_TOKENS: Final = 1024  # prompts up to here take less time than a step of delay is worth


@dataclass(slots=True)
class PendingLookUp:
    """One look-up on its way. The scheduler's thread makes and drops it, the other thread answers it."""

    record: VllmRequest
    boundary: int
    version: int  # of the donors, when it was queued
    is_dropped: bool = False
    answer: ReusePlan | Decline | None = None
    error: Exception | None = None
    seconds: float = 0.0
    ready: threading.Event = field(default_factory=threading.Event)

    def result(self) -> ReusePlan | Decline:
        """The answer, once ``ready`` is set; raises what the look-up raised."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None, "ready is set after the answer"
        return self.answer


class LookUpThread:
    def __init__(self, answer: Callable[[VllmRequest, int], ReusePlan | Decline]) -> None:
        self._answer = answer
        self._queue: queue.Queue[PendingLookUp | None] = queue.Queue(QUEUE_LIMIT)
        self._thread: threading.Thread | None = None

    def submit(self, record: VllmRequest, boundary: int, version: int) -> PendingLookUp | None:
        """None when too many wait: ask again."""
        pending = PendingLookUp(record, boundary, version)
        try:
            self._queue.put_nowait(pending)
        except queue.Full:
            return None
        if self._thread is None:  # prompts may all be short
            self._thread = threading.Thread(target=self._work, name="semblend-look-up", daemon=True)
            self._thread.start()
        return pending

    def close(self) -> None:
        """The thread ends after the look-ups that wait now; with a full queue it ends with the process."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)

    def _work(self) -> None:
        while (pending := self._queue.get()) is not None:
            if pending.is_dropped:
                continue
            started = time.perf_counter()
            try:
                pending.answer = self._answer(pending.record, pending.boundary)
            except Exception as error:  # noqa: BLE001 - raised again on the scheduler's thread, where faults are contained
                pending.error = error
            pending.seconds = time.perf_counter() - started
            pending.ready.set()
