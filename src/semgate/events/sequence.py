"""Where a stream stands: a sequence number and its payload in; next, known, beyond a gap or of a new life out.

Remembers a fingerprint of the last messages (100 bytes each, 1,024 of them): a number that comes back with other
content means that the publisher started again, whatever its clock says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

Verdict = Literal["first", "next", "duplicate", "gap", "restart"]
REMEMBERED: Final = 1024


class SequencePosition:
    """``stamp`` reads the publisher's time from a payload; it decides about numbers older than our memory."""

    def __init__(self, stamp: Callable[[bytes], float | None]) -> None:
        self.next_seq: int | None = None
        self._stamp = stamp
        self._newest: bytes = b""
        self._remembered: list[tuple[int, int]] = [(-1, 0)] * REMEMBERED

    def forget(self) -> None:
        """Nothing is known any more; the next message is the first."""
        self.next_seq = None
        self._remembered = [(-1, 0)] * REMEMBERED

    def begin(self, seq: int) -> None:
        self.next_seq = seq

    def judge(self, seq: int, payload: bytes) -> Verdict:
        if self.next_seq is None:
            return "first"
        if seq == self.next_seq:
            return "next"
        if seq > self.next_seq:
            return "gap"
        return "duplicate" if self.is_known(seq, payload) else "restart"

    def is_known(self, seq: int, payload: bytes) -> bool:
        """Whether this message was taken before, as far as anybody can say."""
        if self.next_seq is None or seq >= self.next_seq:
            return False
        remembered_seq, fingerprint = self._remembered[seq % REMEMBERED]
        if remembered_seq == seq:
            return fingerprint == hash(payload)
        then, newest = self._stamp(payload), self._stamp(self._newest)
        return then is None or newest is None or then <= newest

    def take(self, seq: int, payload: bytes) -> None:
        self._remembered[seq % REMEMBERED] = (seq, hash(payload))
        self._newest = payload
        self.next_seq = seq + 1
