"""Events that adapters write and the bench reads: one JSON object per line, one codec, one contract version.

The decoder rejects an unknown key, kind or version: it is an error of the writer and is not skipped.
"""

from __future__ import annotations

import json
from typing import Final, get_args

from sembase.records import Amount, Count, Record, as_plain, read_json, record_of

CONTRACT_VERSION: Final = "semblend.event.v1"


class EventFormatError(ValueError):
    """A line is not an event of this contract."""


class _Event(Record, frozen=True, tag_field="event"):
    """One of the kinds below."""


class DonorRegistered(_Event, frozen=True, tag="donor_registered"):
    request_id: str
    donor_id: str
    namespace: str
    tokens: Count
    blocks: Count | None = None


class DonorEvicted(_Event, frozen=True, tag="donor_evicted"):
    donor_id: str
    namespace: str
    reason: str


class LookupFinished(_Event, frozen=True, tag="lookup_finished"):
    """The planner's answer. ``reusable_tokens`` are planned, not reused; ``None`` fields were not measured."""

    request_id: str
    namespace: str
    prompt_tokens: Count
    exact_prefix_tokens: Count
    reusable_tokens: Count
    runs: Count
    donor_ids: tuple[str, ...] = ()
    similarity: Amount | None = None
    decline_reason: str | None = None
    duration_us: Amount | None = None


class LoadAdvertised(_Event, frozen=True, tag="load_advertised"):
    """The adapter reported a matched-token count to the engine. These tokens must be loaded or recomputed."""

    request_id: str
    donor_ids: tuple[str, ...]
    tokens: Count
    boundary: Count


class Materialized(_Event, frozen=True, tag="materialized"):
    """The backend loaded donor KV. The only event that counts as reuse.

    ``predicted_ms``: what load and computation were expected to take; ``saved_ms``: what the prefill of the claim would
    have taken, by the same prices. None where the server has not measured what computing costs.
    """

    request_id: str
    donor_ids: tuple[str, ...]
    reused_tokens: Count
    computed_tokens: Count
    runs: Count
    load_ms: Amount | None = None
    compute_ms: Amount | None = None
    predicted_ms: Amount | None = None
    saved_ms: Amount | None = None


class Declined(_Event, frozen=True, tag="declined"):
    request_id: str
    reason: str
    detail: str = ""


class FaultContained(_Event, frozen=True, tag="fault_contained"):
    """An error inside the adapter was contained, and the engine prefilled the request instead."""

    request_id: str
    stage: str
    error: str


class GuardChecked(_Event, frozen=True, tag="guard_checked"):
    """A blended answer was compared with a cold one. ``kl`` is a lower bound: see ``semblend.guard.divergence``."""

    request_id: str
    model: str
    workload_class: str
    kl: Amount


class GuardTurnedOff(_Event, frozen=True, tag="guard_turned_off"):
    """Plans of this class are declined for this model until an operator resets the guard."""

    model: str
    workload_class: str
    why: str


Event = (
    DonorRegistered
    | DonorEvicted
    | LookupFinished
    | LoadAdvertised
    | Materialized
    | Declined
    | FaultContained
    | GuardChecked
    | GuardTurnedOff
)
_KINDS: Final = frozenset(kind.__struct_config__.tag for kind in get_args(Event))
_PLACE: Final = ("engine", "sequence", "timestamp_ms")


class EventLine(Record, frozen=True):
    """An event with its engine, its position in the stream and its time."""

    event: Event
    engine: str
    sequence: Count
    timestamp_ms: Amount


def encode_line(line: EventLine) -> str:
    plain = as_plain(line)
    return json.dumps({"contract": CONTRACT_VERSION, **plain, **plain["event"]}, sort_keys=True, allow_nan=False)


def decode_line(text: str) -> EventLine:
    try:
        record = read_json(text)
    except ValueError as error:
        raise EventFormatError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise EventFormatError("not a JSON object")
    contract = record.pop("contract", None)
    if contract != CONTRACT_VERSION:
        raise EventFormatError(f"contract {contract!r} is not {CONTRACT_VERSION!r}")
    kind = record.get("event")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise EventFormatError(f"unknown event kind {kind!r}; known: {', '.join(sorted(_KINDS))}")
    place = {name: record.pop(name) for name in _PLACE if name in record}
    try:
        return record_of(EventLine, {**place, "event": record})
    except ValueError as error:
        raise EventFormatError(f"{kind}: {error}") from None
