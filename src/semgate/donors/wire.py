"""A payload of a donor stream -> its events. The contract is ``semblend.contract.donor_event``, the packing msgpack."""

from __future__ import annotations

from typing import Final

import msgspec

from semblend.contract.donor_event import DonorBatch, DonorEventError, decode_batch, encode_batch

MAX_PAYLOAD_BYTES: Final = 64 << 20

_decoder: Final = msgspec.msgpack.Decoder()
_encoder: Final = msgspec.msgpack.Encoder()


def unpack(payload: bytes) -> DonorBatch:
    """The batch, or ``DonorEventError`` whatever the bytes are."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise DonorEventError(f"a message of {len(payload)} bytes is larger than {MAX_PAYLOAD_BYTES}")
    try:
        return decode_batch(_decoder.decode(payload))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DonorEventError(f"not msgpack: {error}") from None


def pack(batch: DonorBatch) -> bytes:
    return _encoder.encode(encode_batch(batch))


def announced_s(payload: bytes) -> float | None:
    """When the publisher says it spoke; tells a publisher that started again from one that repeats itself."""
    try:
        return unpack(payload).timestamp_s
    except DonorEventError:
        return None
