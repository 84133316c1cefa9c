"""A batch of donor events as msgpack and back; with 8 bytes of sequence before it on NATS, which has one frame.

The records are those of ``semblend.contract.donor_event``.
"""

from __future__ import annotations

from typing import Final

from sembase.errors import MissingDependencyError
from sembase.ordered_stream import SEQUENCE_BYTES
from semblend.contract.donor_event import DonorBatch, DonorEventError, GenerationReset, decode_batch, encode_batch

try:
    import msgspec
except ImportError as error:
    raise MissingDependencyError(str(error.name), "dynamo", "donor events") from None

_decode: Final = msgspec.msgpack.Decoder().decode
_encode: Final = msgspec.msgpack.Encoder().encode
MAX_PAYLOAD_BYTES: Final = 64 << 20


def pack(batch: DonorBatch) -> bytes:
    return _encode(encode_batch(batch))


def unpack(payload: bytes) -> DonorBatch:
    """The batch, or ``DonorEventError`` whatever the bytes are."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise DonorEventError(f"a message of {len(payload)} bytes is larger than {MAX_PAYLOAD_BYTES}")
    try:
        return decode_batch(_decode(payload))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DonorEventError(f"not msgpack: {error}") from None


def published_s(payload: bytes) -> float | None:
    """The publisher's time of a payload; tells a restarted publisher from a repeated message."""
    try:
        return unpack(payload).timestamp_s
    except DonorEventError:
        return None


def is_snapshot(payload: bytes) -> bool:
    """Whether the publisher repeats its whole state from this message on."""
    try:
        events = unpack(payload).events
    except DonorEventError:
        return False
    return bool(events) and isinstance(events[0], GenerationReset)


def frame(sequence: int, payload: bytes) -> bytes:
    return sequence.to_bytes(SEQUENCE_BYTES, "big") + payload


def unframe(data: bytes) -> tuple[int, bytes]:
    if len(data) < SEQUENCE_BYTES:
        raise DonorEventError(f"a message of {len(data)} bytes has no sequence number")
    return int.from_bytes(data[:SEQUENCE_BYTES], "big"), data[SEQUENCE_BYTES:]
