"""Where an adapter meets its engine: a fault of ours becomes a fallback and an event, not a failed request.

The only broad ``except`` of the engine adapters; the few others in ``src`` each state their reason. Adapters wrap every
call of the engine in it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from semblend.contract import FaultContained

MAX_ERROR_CHARACTERS: Final = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Broken:
    error: Exception


class Border:
    """Runs actions and contains what they raise. ``faults`` counts faults by stage since the start of the process."""

    def __init__(self, report: Callable[[FaultContained], None], log: logging.Logger) -> None:
        self.faults: dict[str, int] = {}
        self._report = report
        self._log = log
        self._seen: dict[tuple[str, type[Exception]], int] = {}
        self._lock = threading.Lock()

    def call(self, stage: str, request_id: str, action: Callable[[], T], fallback: T | Callable[[], T]) -> T:
        """The result of ``action``, or of ``fallback`` (called if it is callable) when the action raises.

        A fallback that raises is the caller's error and is not contained: there would be nothing left to return.
        """
        result = _attempt(action)
        if not isinstance(result, _Broken):
            return result
        self._contain(stage, request_id, result.error)
        return fallback() if callable(fallback) else fallback

    def _contain(self, stage: str, request_id: str, error: Exception) -> None:
        key = (stage, type(error))
        with self._lock:
            self.faults[stage] = self.faults.get(stage, 0) + 1
            times = self._seen[key] = self._seen.get(key, 0) + 1
        text = _attempt(lambda: f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARACTERS])
        if isinstance(text, _Broken):
            text = f"{type(error).__name__}: (message unreadable)"
        fault = FaultContained(request_id, stage, text)
        _attempt(lambda: self._write_log(fault, error, times))
        _attempt(lambda: self._report(fault))

    def _write_log(self, fault: FaultContained, error: Exception, times: int) -> None:
        """Log the first fault of a kind with its traceback, later ones each time their count has doubled."""
        if times == 1:
            self._log.warning(
                "SemBlend contained a fault in %s (request %s): %s",
                fault.stage,
                fault.request_id,
                fault.error,
                exc_info=error,
            )
        elif times & (times - 1) == 0:
            self._log.warning("SemBlend contained a fault in %s (%d times so far): %s", fault.stage, times, fault.error)


def _attempt(action: Callable[[], T]) -> T | _Broken:
    try:
        return action()
    except Exception as error:  # noqa: BLE001 - a bug of ours must not fail a request
        return _Broken(error)
