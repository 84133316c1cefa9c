"""Engine events -> one row per item of the result: what the engine found, advertised, loaded and declined.

Called by the live runners for ``--connector-audit``. Only a ``materialized`` event counts as reuse; an advertised load
does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from sembench.gates.request_ids import item_of
from sembench.metrics.rows import BackendRow
from semblend.contract import (
    Declined,
    DeclineReason,
    EventLine,
    FaultContained,
    LoadAdvertised,
    LookupFinished,
    Materialized,
    Outcome,
)
from semblend.contract.outcome import DISCOVERY_REASONS

# Stages in which a fault undoes the load. A fault elsewhere (copying a donor, the end of a request) leaves it valid.
_LOAD_STAGES: Final = frozenset({"load", "write", "compute"})


def backend_rows(lines: Iterable[EventLine], item_ids: Collection[str]) -> dict[str, BackendRow]:
    """A row for every item the engine reported on. Of an item that was sent twice, the last request counts."""
    known = set(item_ids)
    histories: dict[str, _RequestHistory] = {}
    for line in lines:
        event = line.event
        if not isinstance(event, LookupFinished | LoadAdvertised | Materialized | Declined | FaultContained):
            continue  # donor registrations and evictions
        history = histories.get(event.request_id)
        if history is None:
            history = histories[event.request_id] = _RequestHistory(event.request_id)
        history.add(event)
    rows: dict[str, BackendRow] = {}
    for engine_id, history in histories.items():
        if (item := item_of(engine_id, known)) is not None:
            rows[item] = history.row()
    return rows


@dataclass(slots=True)
class _RequestHistory:
    """The events of one engine request. A later look-up or load of the same request replaces the earlier one."""

    engine_request_id: str
    lookup: LookupFinished | None = None
    advertised: LoadAdvertised | None = None
    loaded: Materialized | None = None
    declined: Declined | None = None
    is_load_broken: bool = False
    faults: int = 0

    def add(self, event: LookupFinished | LoadAdvertised | Materialized | Declined | FaultContained) -> None:
        match event:
            case LookupFinished():
                self.lookup = event
            case LoadAdvertised():
                self.advertised, self.loaded, self.declined, self.is_load_broken = event, None, None, False
            case Materialized():
                self.loaded = event
            case Declined():  # final: an earlier load was preempted and is gone
                self.declined, self.loaded = event, None
            case FaultContained():
                self.faults += 1
                self.is_load_broken |= event.stage in _LOAD_STAGES

    def row(self) -> BackendRow:
        loaded = None if self.is_load_broken else self.loaded
        outcome = self._outcome(loaded)
        is_reused = outcome is Outcome.BACKEND_MATERIALIZED_REUSE
        return BackendRow(
            engine_request_id=self.engine_request_id,
            outcome=outcome.value,
            found_tokens=self.lookup.reusable_tokens if self.lookup is not None else None,
            advertised_tokens=self._advertised_tokens(),
            boundary=self.advertised.boundary if self.advertised is not None else None,
            reused_tokens=self._reused_tokens(loaded),
            computed_tokens=loaded.computed_tokens if loaded is not None else None,
            runs=loaded.runs if loaded is not None else None,
            decline_reason=None if is_reused else self._reason(),
            faults=self.faults,
            load_ms=loaded.load_ms if loaded is not None else None,
            compute_ms=loaded.compute_ms if loaded is not None else None,
        )

    def _advertised_tokens(self) -> int | None:
        """0 only if the engine looked up and advertised nothing; None for a request known only from a fault."""
        if self.advertised is not None:
            return self.advertised.tokens
        return 0 if self.lookup is not None or self.declined is not None else None

    def _reused_tokens(self, loaded: Materialized | None) -> int | None:
        """0 if the engine reported no reuse (nothing found, declined, load failed); None if a load has no outcome."""
        if loaded is not None:
            return loaded.reused_tokens
        if self.is_load_broken or self.declined is not None:
            return 0
        if self.lookup is not None and self.advertised is None and not self.lookup.reusable_tokens:
            return 0
        return None

    def _outcome(self, loaded: Materialized | None) -> Outcome:
        if loaded is not None and loaded.reused_tokens:
            return Outcome.BACKEND_MATERIALIZED_REUSE
        if self.advertised is not None or self.is_load_broken or (self.lookup and self.lookup.reusable_tokens):
            return Outcome.BACKEND_DECLINED_REUSE
        if self._reason() in DISCOVERY_REASONS or (self.lookup and self.lookup.similarity is not None):
            return Outcome.SEMANTIC_DISCOVERY_ONLY
        if self.lookup and self.lookup.exact_prefix_tokens:
            return Outcome.EXACT_PREFIX
        return Outcome.COLD_FALLBACK

    def _reason(self) -> str | None:
        if self.is_load_broken:
            return DeclineReason.INTERNAL_ERROR.value
        if self.declined is not None:
            return self.declined.reason
        return self.lookup.decline_reason if self.lookup is not None else None
