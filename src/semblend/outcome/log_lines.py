"""The documented log lines, one per event. The event stream has more detail."""

from __future__ import annotations

from semblend.contract import (
    Declined,
    DonorRegistered,
    Event,
    FaultContained,
    GuardTurnedOff,
    LoadAdvertised,
    LookupFinished,
    Materialized,
)


def log_line(event: Event) -> str | None:
    """The log line of an event, or ``None`` if it has none. Only *materialized* means reuse."""
    match event:
        case DonorRegistered():
            return (
                f"SemBlend donor registered request_id={event.request_id} namespace={event.namespace} "
                f"tokens={event.tokens} blocks={event.blocks or 0}"
            )
        case LookupFinished() if event.donor_ids:
            similarity = 1.0 if event.similarity is None else event.similarity
            return (
                f"SemBlend semantic lookup hit request_id={event.request_id} donor_id={event.donor_ids[0]} "
                f"similarity={similarity:.3f} kind=tokens reusable_tokens={event.reusable_tokens} "
                f"reason={event.decline_reason or 'planned'}"
            )
        case LoadAdvertised():
            return (
                f"SemBlend request-local experimental load advertised request_id={event.request_id} "
                f"donor_id={_first(event.donor_ids)} tokens={event.tokens}"
            )
        case Materialized():
            return (
                f"SemBlend materialized request_id={event.request_id} donor_id={_first(event.donor_ids)} "
                f"tokens={event.reused_tokens}"
            )
        case Declined():
            return f"SemBlend declined request_id={event.request_id} reason={event.reason}"
        case FaultContained():
            return f"SemBlend fault contained request_id={event.request_id} stage={event.stage}"
        case GuardTurnedOff():
            return f"SemBlend guard turned off class={event.workload_class} model={event.model}: {event.why}"
        case _:
            return None


def _first(donor_ids: tuple[str, ...]) -> str:
    return donor_ids[0] if donor_ids else "none"
