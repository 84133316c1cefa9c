"""One message of an event stream: msgpack of ``[time, [event, ...], rank]`` in, its events still undecoded out.

vLLM, SGLang and SemBlend's announcements of donors share this shape. The number of events is known from the head of
their array and checked before anything is allocated for them; what an event contains is skipped, not decoded.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

MAX_EVENTS: Final = 1 << 17  # a prompt of 128K at SGLang with pages of one token, prefill not chunked

# What decoding may raise. The errors of msgspec and those of text that is not UTF-8 are ``ValueError`` too.
UNREADABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)


class EventBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_EVENTS)]
    rank: int | None = None


class _Published(msgspec.Struct, array_like=True, gc=False):
    ts: float


_batch_decoder: Final = msgspec.msgpack.Decoder(EventBatch)
_published_decoder: Final = msgspec.msgpack.Decoder(_Published)


def open_batch(payload: bytes) -> EventBatch:
    """Raises one of ``UNREADABLE`` unless it is a batch of at most ``MAX_EVENTS`` events."""
    return _batch_decoder.decode(payload)


def published_s(payload: bytes) -> float | None:
    """When the publisher made a batch, by its own clock; ``None`` if unreadable. Reads nothing after it."""
    try:
        return _published_decoder.decode(payload).ts
    except UNREADABLE:
        return None
