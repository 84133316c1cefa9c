"""The connector's event stream, read while the server writes it: results of requests, and when a donor is findable."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from semblend.contract import Outcome
from semblend.contract.event import (
    Declined,
    DonorRegistered,
    Event,
    FaultContained,
    LookupFinished,
    Materialized,
    decode_line,
)

WAIT_S = 2.0
POLL_S = 0.01
POKE_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class RequestResult:
    """What the stream reports about one request. ``None`` where it reports nothing."""

    outcome: str
    reason: str | None = None
    reused_tokens: int = 0
    computed_tokens: int = 0
    runs: int = 0
    lookup_ms: float | None = None
    load_ms: float | None = None
    compute_ms: float | None = None
    predicted_ms: float | None = None
    saved_ms: float | None = None

    @property
    def was_reused(self) -> bool:
        return self.outcome == Outcome.BACKEND_MATERIALIZED_REUSE


@dataclass(slots=True)
class Happenings:
    """Follows one event file. Ids in it are the engine's: ours plus what the server appends."""

    path: Path
    _offset: int = 0
    _rest: bytes = b""
    _events: dict[str, list[Event]] = field(default_factory=dict)
    _registered: set[str] = field(default_factory=set)
    faults: int = 0

    def result(self, request_id: str) -> RequestResult:
        """Waits up to ``WAIT_S``: the stream may lag behind the answer."""
        deadline = time.monotonic() + WAIT_S
        while True:
            self._read()
            found = result_of(self._events.get(request_id, []))
            if found is not None:
                return found
            if time.monotonic() > deadline:
                return RequestResult("unknown", "no event")
            time.sleep(POLL_S)

    def wait_for_donor(self, request_id: str, poke: Callable[[], object], timeout_s: float) -> bool:
        """Until the request is findable as a donor. An idle engine takes no steps, so it is poked now and then."""
        started = time.monotonic()
        poked_s = started
        while True:
            self._read()
            if request_id in self._registered:
                return True
            now = time.monotonic()
            if now - started > timeout_s:
                return False
            if now - poked_s > POKE_EVERY_S:
                poke()
                poked_s = now
            time.sleep(POLL_S)

    def _read(self) -> None:
        if not self.path.is_file():
            return
        with self.path.open("rb") as stream:
            stream.seek(self._offset)
            new = stream.read()
        self._offset += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        for line in whole:
            self._take(decode_line(line.decode()).event)

    def _take(self, event: Event) -> None:
        if isinstance(event, FaultContained):
            self.faults += 1
        request_id = own_id(getattr(event, "request_id", ""))
        if isinstance(event, DonorRegistered):
            self._registered.add(request_id)
        self._events.setdefault(request_id, []).append(event)


def own_id(engine_id: str) -> str:
    """``cmpl-bench7-0-1a2b3c4d`` -> ``bench7``."""
    return engine_id.removeprefix("cmpl-").partition("-")[0]


def result_of(events: list[Event]) -> RequestResult | None:
    """Later events override earlier ones; a look-up that planned something is not yet a result."""
    looked_up_ms: float | None = None
    found: RequestResult | None = None
    for event in events:
        if isinstance(event, LookupFinished):
            looked_up_ms = None if event.duration_us is None else event.duration_us / 1e3
            if event.decline_reason is not None:
                found = RequestResult(Outcome.BACKEND_DECLINED_REUSE, event.decline_reason, lookup_ms=looked_up_ms)
        elif isinstance(event, Declined):
            found = RequestResult(Outcome.BACKEND_DECLINED_REUSE, event.reason, lookup_ms=looked_up_ms)
        elif isinstance(event, FaultContained):
            found = RequestResult(Outcome.COLD_FALLBACK, f"{event.stage}: {event.error}", lookup_ms=looked_up_ms)
        elif isinstance(event, Materialized):
            found = RequestResult(
                Outcome.BACKEND_MATERIALIZED_REUSE,
                None,
                event.reused_tokens,
                event.computed_tokens,
                event.runs,
                looked_up_ms,
                event.load_ms,
                event.compute_ms,
                event.predicted_ms,
                event.saved_ms,
            )
    return found
