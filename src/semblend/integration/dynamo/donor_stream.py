"""One publisher's messages in their order: what is missing is noticed, asked for, and nothing is believed meanwhile.

Batches with their sequence go in, on whatever transport; what holds goes to ``apply``, and ``clear`` forgets a worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from semblend.contract.donor_event import DonorBatch, GenerationReset

ASK_AGAIN_S: Final = 5.0


class DonorStream:
    """After a loss that no replay could fill, only a publisher that tells everything again is believed."""

    def __init__(
        self,
        apply: Callable[[DonorBatch], None],
        clear: Callable[[], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.expected = 0
        self.is_lost = False
        self.gaps = 0
        self._apply = apply
        self._clear = clear
        self._clock_s = clock_s
        self._last_s = float("-inf")
        self._asked_s = float("-inf")

    def live(self, sequence: int, batch: DonorBatch) -> int | None:
        """Take a message; the sequence from which a replay should be asked for, if one should."""
        if sequence < self.expected and batch.timestamp_s > self._last_s:
            self._lose()  # the publisher has started again
            self.is_lost, self.expected = False, 0
        if self.is_lost and _tells_all(batch):
            self.is_lost, self.expected = False, sequence
        if self.is_lost:
            return self._ask(0)
        if sequence > self.expected:
            self.gaps += 1
            return self._ask(self.expected)
        if sequence == self.expected:
            self._take(sequence, batch)
        return None

    def replayed(self, messages: Sequence[tuple[int, DonorBatch]]) -> None:
        """The answer to a question, in order. What begins behind the gap does not close it."""
        for sequence, batch in messages:
            if sequence > self.expected:
                self._lose()
                if not _tells_all(batch):
                    continue
                self.is_lost, self.expected = False, sequence
            if sequence == self.expected and not self.is_lost:
                self._take(sequence, batch)

    def unanswered(self) -> None:
        """A replay did not come: nobody knows which donors are gone."""
        self._lose()

    def _ask(self, start: int) -> int | None:
        if self._clock_s() - self._asked_s < ASK_AGAIN_S and self.is_lost:
            return None
        self._asked_s = self._clock_s()
        return start

    def _take(self, sequence: int, batch: DonorBatch) -> None:
        self.expected = sequence + 1
        self._last_s = batch.timestamp_s
        self._apply(batch)

    def _lose(self) -> None:
        self._clear()
        self.is_lost = True


def _tells_all(batch: DonorBatch) -> bool:
    return bool(batch.events) and isinstance(batch.events[0], GenerationReset)
