"""The worker's reports to the leader of one rank, inside their process; the engine carries metadata one way only.

The worker reports that pages were saved, loaded or lost; the leader takes the reports at its next call. At most one
entry per command of a step waits here.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakValueDictionary


@dataclass(frozen=True, slots=True)
class Saved:
    donor_id: str


@dataclass(frozen=True, slots=True)
class SaveFailed:
    donor_id: str


@dataclass(frozen=True, slots=True)
class Loaded:
    request_id: int
    load_ms: float


WorkerReport = Saved | SaveFailed | Loaded


class Link:
    """``fault`` says why the worker cannot load; empty once its self-test passed."""

    def __init__(self, engine_arguments: Any) -> None:
        self.engine_arguments = engine_arguments  # held, so that its id is not reused
        self.fault = "the worker has not registered its KV cache"
        self.page_bytes = 0
        self.page_count = 0
        self._reports: deque[WorkerReport] = deque()

    def report(self, report: WorkerReport) -> None:
        self._reports.append(report)

    def take(self) -> list[WorkerReport]:
        return [self._reports.popleft() for _ in range(len(self._reports))]


_lock: Final = threading.Lock()
_links: Final[WeakValueDictionary[int, Link]] = WeakValueDictionary()


def link_of(engine_arguments: Any) -> Link:
    """The link of the engine that passed these arguments; it constructs both halves at once, in two threads."""
    with _lock:
        link = _links.get(id(engine_arguments))
        if link is None:
            _links[id(engine_arguments)] = link = Link(engine_arguments)
        return link
