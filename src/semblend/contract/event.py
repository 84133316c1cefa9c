"""Events that adapters write and the bench reads: one JSON object per line, one codec, one contract version.

The decoder rejects an unknown key, kind or version: it is an error of the writer and is not skipped.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from types import UnionType
from typing import Any, ClassVar, Final, Union, get_args, get_origin, get_type_hints

CONTRACT_VERSION: Final = "semblend.event.v1"


class EventFormatError(ValueError):
    """A line is not an event of this contract."""


@dataclass(frozen=True, slots=True)
class DonorRegistered:
    kind: ClassVar[str] = "donor_registered"
    request_id: str
    donor_id: str
    namespace: str
    tokens: int
    blocks: int | None = None


@dataclass(frozen=True, slots=True)
class DonorEvicted:
    kind: ClassVar[str] = "donor_evicted"
    donor_id: str
    namespace: str
    reason: str


@dataclass(frozen=True, slots=True)
class LookupFinished:
    """The planner's answer. ``reusable_tokens`` are planned, not reused; ``None`` fields were not measured."""

    kind: ClassVar[str] = "lookup_finished"
    request_id: str
    namespace: str
    prompt_tokens: int
    exact_prefix_tokens: int
    reusable_tokens: int
    runs: int
    donor_ids: tuple[str, ...] = ()
    similarity: float | None = None
    decline_reason: str | None = None
    duration_us: float | None = None


@dataclass(frozen=True, slots=True)
class LoadAdvertised:
    """The adapter reported a matched-token count to the engine. These tokens must be loaded or recomputed."""

    kind: ClassVar[str] = "load_advertised"
    request_id: str
    donor_ids: tuple[str, ...]
    tokens: int
    boundary: int


@dataclass(frozen=True, slots=True)
class Materialized:
    """The backend loaded donor KV. The only event that counts as reuse."""

    kind: ClassVar[str] = "materialized"
    request_id: str
    donor_ids: tuple[str, ...]
    reused_tokens: int
    computed_tokens: int
    runs: int
    load_ms: float | None = None
    compute_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    kind: ClassVar[str] = "declined"
    request_id: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FaultContained:
    """An error inside the adapter was contained, and the engine prefilled the request instead."""

    kind: ClassVar[str] = "fault_contained"
    request_id: str
    stage: str
    error: str


@dataclass(frozen=True, slots=True)
class GuardChecked:
    """A blended answer was compared with a cold one. ``kl`` is a lower bound: see ``semblend.guard.divergence``."""

    kind: ClassVar[str] = "guard_checked"
    request_id: str
    model: str
    workload_class: str
    kl: float


@dataclass(frozen=True, slots=True)
class GuardTurnedOff:
    """Plans of this class are declined for this model until an operator resets the guard."""

    kind: ClassVar[str] = "guard_turned_off"
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
_KINDS: Final[dict[str, type[Any]]] = {cls.kind: cls for cls in get_args(Event)}
_HINTS: Final = {
    kind: {f.name: get_type_hints(cls)[f.name] for f in fields(cls)} for kind, cls in _KINDS.items()
}  # computed once: reading a stream is a hot path of the bench


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event with its engine, its position in the stream and its time."""

    event: Event
    engine: str
    sequence: int
    timestamp_ms: float


def encode_line(line: EventLine) -> str:
    record: dict[str, Any] = {
        "contract": CONTRACT_VERSION,
        "engine": line.engine,
        "event": line.event.kind,
        "sequence": line.sequence,
        "timestamp_ms": line.timestamp_ms,
        **asdict(line.event),
    }
    return json.dumps(record, sort_keys=True, allow_nan=False)


def decode_line(text: str) -> EventLine:
    try:
        record = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise EventFormatError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise EventFormatError("not a JSON object")
    contract = record.pop("contract", None)
    if contract != CONTRACT_VERSION:
        raise EventFormatError(f"contract {contract!r} is not {CONTRACT_VERSION!r}")
    kind = record.pop("event", None)
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise EventFormatError(f"unknown event kind {kind!r}; known: {', '.join(sorted(_KINDS))}")
    engine = _checked("engine", record.pop("engine", None), str)
    sequence = _checked("sequence", record.pop("sequence", None), int)
    timestamp_ms = _checked("timestamp_ms", record.pop("timestamp_ms", None), float)
    if unknown := sorted(set(record) - _HINTS[cls.kind].keys()):
        raise EventFormatError(f"{kind}: unknown keys {unknown}")
    hints = _HINTS[cls.kind]
    values = {name: _checked(name, value, hints[name]) for name, value in record.items()}
    try:
        event = cls(**values)
    except TypeError as error:
        raise EventFormatError(f"{kind}: {error}") from None
    return EventLine(event=event, engine=engine, sequence=sequence, timestamp_ms=timestamp_ms)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _checked(name: str, value: Any, hint: Any) -> Any:
    """``value`` if it has the declared type, with JSON's lists read as tuples and whole numbers allowed as floats."""
    if get_origin(hint) in (Union, UnionType):
        options = get_args(hint)
        if value is None and type(None) in options:
            return None
        hint = next(option for option in options if option is not type(None))
    if get_origin(hint) is tuple:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise EventFormatError(f"{name}: the number is too large") from None
    elif isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise EventFormatError(f"{name}: {value!r} is not {getattr(hint, '__name__', hint)}")
