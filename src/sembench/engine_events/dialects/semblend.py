"""The event stream that SemBlend's adapters write (``semblend.event.v1``), the same for every engine."""

from __future__ import annotations

from sembench.engine_events.decode import Sequence, decode_event
from sembench.engine_events.dialects.base import LineResult
from sembench.engine_events.tally import Tally
from semblend.contract import (
    Declined,
    DonorRegistered,
    Event,
    FaultContained,
    LoadAdvertised,
    LookupFinished,
    Materialized,
)


class SemblendDialect:
    def __init__(self) -> None:
        self._sequence = Sequence()
        self._missing = 0

    def begin(self, tally: Tally) -> None:
        tally.measures("donor_registrations", "semantic_hits", "load_advertisements")
        tally.measures("materialization_events", "materialized_tokens", "materialized_units")

    def read_line(self, line: str, tally: Tally) -> LineResult:
        if not line.lstrip().startswith("{"):
            return LineResult.OTHER
        decoded = decode_event(line)
        if decoded is None:
            return LineResult.DAMAGED
        self._missing += self._sequence.gap_before(decoded)
        _count(decoded.event, tally)
        return LineResult.UNDERSTOOD

    def finish(self, tally: Tally) -> None:
        if self._missing:
            tally.warn(f"{self._missing} events are missing from the stream (sequence gaps); counts are lower bounds")


def _count(event: Event, tally: Tally) -> None:
    match event:
        case DonorRegistered():
            tally.add("donor_registrations")
        case LookupFinished() if event.donor_ids:
            tally.hit(event.request_id, reusable_tokens=event.reusable_tokens)
        case LoadAdvertised():
            tally.add("load_advertisements")
            tally.note("load_advertised", event.request_id, tokens=event.tokens, boundary=event.boundary)
        case Materialized():
            computed = event.computed_tokens
            tally.materialized(event.request_id, event.reused_tokens, event.runs, computed_tokens=computed)
        case Declined():
            tally.reject(event.reason)
            tally.note("declined", event.request_id, reason=event.reason)
        case FaultContained():
            tally.error(f"fault contained in {event.stage} (request {event.request_id}): {event.error}")
        case _:
            pass  # an eviction, or a look-up that found nothing
