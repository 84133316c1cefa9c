"""Puts donors into a carrier and takes them out verified. KV bytes in, KV bytes or the reason why not out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from semblend.fleet.carrier.base import CarrierError, KvCarrier, Piece, TooShortError
from semblend.fleet.donor_object import KvBytes, ObjectForm, RowShape, SealError, pack, read_head
from semblend.fleet.keys import SpaceKeys


class FetchOutcome(Enum):
    FETCHED = "fetched"
    MISSING = "missing"
    REFUSED = "refused"  # not what a holder of the secret wrote for this donor
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Fetched:
    outcome: FetchOutcome
    detail: str = ""
    read_bytes: int = 0
    writer: bytes = b""


class SealedDonors:
    """One per rank. Thread-safe: every call has its own buffers."""

    def __init__(self, carrier: KvCarrier, shape: RowShape, writer: bytes) -> None:
        self._carrier = carrier
        self._shape = shape
        self._writer = writer

    def publish(self, keys: SpaceKeys, donor_id: str, kv: KvBytes) -> bool:
        """Put a donor. False if the fleet has it. Raises ``CarrierError``."""
        if self._carrier.contains([donor_id]) == [True]:
            return False
        return self._carrier.put(donor_id, pack(kv, keys, donor_id, self._writer))

    def fetch(
        self,
        keys: SpaceKeys,
        donor_id: str,
        tokens: int,
        into: KvBytes,
        ranges: Sequence[tuple[int, int]] | None = None,
        heads: range | None = None,
    ) -> Fetched:
        """Write the rows of ``ranges`` (None: all), whole pages of them, to their places in ``into``.

        Whatever is not ``FETCHED`` may have left rows in ``into``. A donor that fails its seal is removed from the
        carrier, so that a good one can take its place. With all heads wanted it is one
        read of the carrier; else one piece per page.
        """
        form = ObjectForm(self._shape, tokens)
        head_bytes = np.empty(form.head_bytes, np.uint8)
        spans = form.pages_of(ranges if ranges is not None else [(0, tokens)])
        if heads is not None and len(heads) < self._shape.heads:
            spans = [(page, page + 1) for first, end in spans for page in range(first, end)]
        buffers = [self._buffer(form, first, end, heads) for first, end in spans]
        pieces = [Piece(0, head_bytes), *buffers]
        read_bytes = sum(len(piece.into) for piece in pieces)
        try:
            if not self._carrier.read(donor_id, pieces):
                return Fetched(FetchOutcome.MISSING)  # another replica may be writing it
            head = read_head(head_bytes.tobytes(), form, keys, donor_id)
            for (first, _), piece in zip(spans, buffers, strict=True):
                head.unpack(piece.into, first, into, heads)
        except SealError as error:
            self.remove(donor_id)
            return Fetched(FetchOutcome.REFUSED, str(error), read_bytes, error.writer)
        except TooShortError:
            self.remove(donor_id)  # it would keep its place for ever
            return Fetched(FetchOutcome.MISSING)
        except CarrierError as error:
            return Fetched(FetchOutcome.UNREACHABLE, str(error))
        return Fetched(FetchOutcome.FETCHED, "", read_bytes, head.writer)

    def _buffer(self, form: ObjectForm, first: int, end: int, heads: range | None) -> Piece:
        start, stop = form.offset(first), form.offset(end)
        if heads is not None and len(heads) < form.shape.heads:
            start, stop = form.offset(first, heads.start), form.offset(first, heads.stop)
        return Piece(start, np.empty(stop - start, np.uint8))

    def remove(self, donor_id: str) -> None:
        """Take a donor out of the carrier, so that another can take its place."""
        try:
            self._carrier.drop(donor_id)
        except CarrierError:
            return  # a reader without the right to remove refuses it again next time
