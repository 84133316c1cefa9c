"""A batch of donor events as bytes and back: 8 bytes of sequence, then msgpack. Used on NATS, which has one frame."""

from __future__ import annotations

from typing import Final

from sembase.errors import MissingDependencyError
from semblend.contract.donor_event import DonorBatch, DonorEventError, decode_batch, encode_batch

try:
    import msgspec
except ImportError as error:
    raise MissingDependencyError(str(error.name), "dynamo", "donor events for Dynamo") from None

SEQUENCE_BYTES: Final = 8
END: Final = (-1).to_bytes(SEQUENCE_BYTES, "big", signed=True)
MAX_PAYLOAD_BYTES: Final = 64 << 20


def pack(batch: DonorBatch) -> bytes:
    return msgspec.msgpack.encode(encode_batch(batch))


def unpack(payload: bytes) -> DonorBatch:
    """The batch, or ``DonorEventError`` whatever the bytes are."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise DonorEventError(f"a message of {len(payload)} bytes is larger than {MAX_PAYLOAD_BYTES}")
    try:
        return decode_batch(msgspec.msgpack.decode(payload))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DonorEventError(f"not msgpack: {error}") from None


def frame(sequence: int, payload: bytes) -> bytes:
    return sequence.to_bytes(SEQUENCE_BYTES, "big") + payload


def unframe(data: bytes) -> tuple[int, bytes]:
    if len(data) < SEQUENCE_BYTES:
        raise DonorEventError(f"a message of {len(data)} bytes carries no sequence")
    return int.from_bytes(data[:SEQUENCE_BYTES], "big"), data[SEQUENCE_BYTES:]
