"""Texts for the semantic path, decoded on a thread of their own: engines provide tokens, embedders need text.

Texts that come too late or find the queue full are dropped; the semantic path only suggests donors.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from semblend.integration.border import Border

QUEUE_LIMIT: Final = 256


@dataclass(frozen=True, slots=True)
class _Job:
    request_id: str
    tokens: NDArray[np.uint32]
    take: Callable[[str], None]


class TextDecoder:
    """``decode(tokens, take)`` passes the text to ``take`` on the decoder's thread, or drops it."""

    def __init__(self, make_decode: Callable[[], Callable[[list[int]], str]], border: Border) -> None:
        self.dropped = 0
        self._make_decode = make_decode
        self._border = border
        self._jobs: queue.Queue[_Job] = queue.Queue(QUEUE_LIMIT)
        threading.Thread(target=self._work, name="semblend-texts", daemon=True).start()

    def decode(self, request_id: str, tokens: NDArray[np.uint32], take: Callable[[str], None]) -> None:
        try:
            self._jobs.put_nowait(_Job(request_id, tokens, take))
        except queue.Full:
            self.dropped += 1

    def _work(self) -> None:
        to_text = self._border.call("tokenizer", "", self._make_decode, None)
        while True:
            job = self._jobs.get()
            if to_text is not None:
                self._border.call("decode", job.request_id, partial(_hand_over, job, to_text), None)


def _hand_over(job: _Job, to_text: Callable[[list[int]], str]) -> None:
    job.take(to_text(job.tokens.tolist()))
