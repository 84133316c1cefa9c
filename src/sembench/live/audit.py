"""The connectors' event files, read while engines write them: which donors can be found, what became of a recipient.

Waits are bounded, and an idle engine is nudged: it takes no steps, so it would never report the last ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from sembench.engine_events.follow import EventFollower
from sembench.engine_events.join import backend_rows
from sembench.gates.request_ids import item_of
from sembench.metrics.rows import BackendRow
from semblend.contract import DonorRegistered, EventLine

_POLL_S: Final = 0.01
_FIRST_NUDGE_S: Final = 0.1
_NUDGE_EVERY_S: Final = 0.5
_SILENT_S: Final = 0.5


class ConnectorAudit:
    """Knows only requests that were announced with ``expect``; what the file held before is somebody else's.

    Behind a router every engine has a file of its own. Where nothing has appeared since the start, though requests were
    served, nothing is waited for any longer than a moment: no connector writes there.
    """

    def __init__(self, paths: Sequence[Path], settle_s: float, nudge: Callable[[], Awaitable[object]]) -> None:
        self._followers = [EventFollower(path) for path in paths]
        self._settle_s = settle_s
        self._nudge = nudge
        self._events: dict[str, list[EventLine]] = {}
        self._has_spoken = False
        for follower in self._followers:
            follower.read()

    @property
    def damaged(self) -> int:
        return sum(follower.damaged for follower in self._followers)

    @property
    def missing(self) -> int:
        return sum(follower.missing for follower in self._followers)

    def expect(self, request_ids: Collection[str]) -> None:
        """From now on these are ours. What was said under the same ids before, by a run that died, is forgotten."""
        self._read()
        for request_id in request_ids:
            self._events[request_id] = []

    async def unregistered(self, donor_ids: Collection[str]) -> set[str]:
        """Waits until all are findable; those that are not when patience ends."""

        def waiting() -> set[str]:
            return {name for name in donor_ids if not any(map(_is_registration, self._events.get(name, ())))}

        await self._until(lambda: not waiting())
        return waiting()

    async def fate(self, item_id: str) -> BackendRow | None:
        """What the engine says of the request: waits until it has said whether anything was reused."""

        def told() -> BackendRow | None:
            return backend_rows(self._events.get(item_id, ()), (item_id,)).get(item_id)

        await self._until(lambda: (row := told()) is not None and row.reused_tokens is not None)
        return told()

    def release(self, request_ids: Collection[str]) -> None:
        for request_id in request_ids:
            self._events.pop(request_id, None)

    def close(self) -> None:
        for follower in self._followers:
            follower.close()

    async def _until(self, holds: Callable[[], bool]) -> None:
        started = time.monotonic()
        nudge_at = started + _FIRST_NUDGE_S
        while True:
            self._read()
            now = time.monotonic()
            patience_s = self._settle_s if self._has_spoken else min(_SILENT_S, self._settle_s)
            if holds() or now - started >= patience_s:
                return
            if now >= nudge_at:
                for _ in self._followers:  # a router gives each engine its turn
                    await self._nudge()
                nudge_at = time.monotonic() + _NUDGE_EVERY_S
            await asyncio.sleep(_POLL_S)

    def _read(self) -> None:
        for line in (line for follower in self._followers for line in follower.read()):
            self._has_spoken = True
            request_id = getattr(line.event, "request_id", None)
            if request_id is not None and (known := item_of(request_id, self._events.keys())) is not None:
                self._events[known].append(line)


def _is_registration(line: EventLine) -> bool:
    return isinstance(line.event, DonorRegistered)
