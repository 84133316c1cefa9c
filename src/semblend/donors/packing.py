"""A batch of donor events as msgpack and back.

The records are those of ``semblend.contract.donor_event``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from sembase.errors import MissingDependencyError
from semblend.contract.donor_event import DonorBatch, DonorEventError, GenerationReset, decode_batch, encode_batch

try:
    import msgspec
except ImportError as error:
    raise MissingDependencyError(str(error.name), "dynamo", "donor events") from None

from sembase.event_batch import UNREADABLE, EventBatch, open_batch

MAX_EVENTS: Final = 256  # of a message; publishers send up to 64
_Map = Annotated[dict[str, msgspec.Raw], msgspec.Meta(max_length=32)]
_Gates = Annotated[dict[str, int | float], msgspec.Meta(max_length=256)]
_decode_map: Final = msgspec.msgpack.Decoder(_Map).decode
_decode_gates: Final = msgspec.msgpack.Decoder(_Gates).decode
_decode_value: Final = msgspec.msgpack.Decoder().decode
_encode: Final = msgspec.msgpack.Encoder().encode


def pack(batch: DonorBatch) -> bytes:
    return _encode(encode_batch(batch))


def unpack(payload: bytes) -> DonorBatch:
    """The batch, or ``DonorEventError`` whatever the bytes are."""
    batch = _opened(payload)
    if len(batch.events) > MAX_EVENTS:
        raise DonorEventError(f"a message of {len(batch.events)} events has more than {MAX_EVENTS}")
    try:
        events = [_plain(raw) for raw in batch.events]
    except UNREADABLE as error:
        raise DonorEventError(f"not a donor event: {error}") from None
    return decode_batch([batch.ts, events, batch.rank])


def is_snapshot(payload: bytes) -> bool:
    """Whether the publisher repeats its whole state from this message on."""
    try:
        events = unpack(payload).events
    except DonorEventError:
        return False
    return bool(events) and isinstance(events[0], GenerationReset)


def _opened(payload: bytes) -> EventBatch:
    try:
        return open_batch(payload)
    except UNREADABLE as error:
        raise DonorEventError(f"not msgpack: {error}") from None


def _plain(raw: msgspec.Raw) -> dict[str, Any]:
    return {name: _value(value) for name, value in _decode_map(raw).items()}


def _value(raw: msgspec.Raw) -> Any:
    """The only value that may contain others is a map of numbers, the gates."""
    first = memoryview(raw)[0]
    is_container = 0x80 <= first < 0xA0 or 0xDC <= first <= 0xDF
    return (_decode_gates if is_container else _decode_value)(raw)
