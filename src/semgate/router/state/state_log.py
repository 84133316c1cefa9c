"""The router's log lines about replicas that stop or start taking requests. Called with the fleet once a second."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from semgate.fleet import Replica
from semgate.logs import log

MAX_LINES: Final = 30  # in WINDOW_SECONDS, for all replicas
WINDOW_SECONDS: Final = 60.0


class StateLog:
    """One warning per change, with the reason. A new replica is expected to take requests."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._down: set[Replica] = set()
        self._window_s = clock_s()
        self._lines = 0
        self._left_out = 0

    def note(self, replicas: Iterable[Replica]) -> None:
        down = {}
        for each in replicas:
            if (why := _why_down(each)) is not None:
                down[each] = why
                if each not in self._down:
                    self._log("replica takes no requests", replica=each.name, why=why)
            elif each in self._down:
                self._log("replica takes requests again", replica=each.name)
        self._down = set(down)

    def _log(self, event: str, **fields: str) -> None:
        now_s = self._clock_s()
        if now_s - self._window_s >= WINDOW_SECONDS:
            self._window_s, self._lines = now_s, 0
        if self._lines >= MAX_LINES:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        log(logging.WARNING, event, **fields, lines_left_out=left_out)


def _why_down(replica: Replica) -> str | None:
    state = replica.state()
    if state == "ready":
        return None
    if state == "draining":
        return "draining"
    if state in ("open", "half_open"):
        return "requests failed there; its breaker is open"
    return "health checks failed" if not replica.healthy else "discovery reports it as not ready"
