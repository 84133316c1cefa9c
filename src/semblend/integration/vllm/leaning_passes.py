"""New donors measured once while the engine is idle, in its own prefix cache: what each of their tokens leaned on.

No block is held for it. An idle step schedules no request, and workers carry out steps in order, so the blocks that
are found when a slice is commanded hold the donor until the slice is done. A donor whose blocks are gone by then has
no leaning, and its tokens are selected without.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import ContextRisk, Run
from semblend.integration.vllm.commands import LeaningCommand

if TYPE_CHECKING:
    from semblend.integration.core.donor_book import DonorBook
    from semblend.integration.vllm.cached_donors import CachedDonors

MAX_DUE_TOKENS: Final = 16_384  # the longest wait of a pause or a shutdown; the oldest donors are left out
SLICE_TOKENS: Final = 256  # per idle step: the longest wait of a request that arrives in the meantime
_NO_RISK: Final = ContextRisk(0, 0, 0.0)


@dataclass(slots=True)
class _Due:
    tokens: NDArray[np.uint32]
    at: int = 0


class LeaningPasses:
    """On the scheduler's thread. ``is_on``: the deployment's policy reads leaning, and one rank sees all heads."""

    def __init__(self, cached: CachedDonors, book: DonorBook, *, is_on: bool) -> None:
        self._cached = cached
        self._book = book
        self._is_on = is_on
        self._due: OrderedDict[str, _Due] = OrderedDict()

    @property
    def is_waiting(self) -> bool:
        """Whether donors are due: the engine should make steps while it is idle."""
        return bool(self._due)

    def stored(self, donor_id: str, tokens: NDArray[np.uint32]) -> None:
        """A donor is complete. Those that were never in the engine's cache under public hashes are not measured."""
        known = min(self._cached.tokens_of(donor_id), len(tokens)) if self._is_on else 0
        if not 0 < known <= MAX_DUE_TOKENS:
            return
        self._due[donor_id] = _Due(tokens[:known])
        while sum(len(due.tokens) - due.at for due in self._due.values()) > MAX_DUE_TOKENS:
            self._due.popitem(last=False)

    def next_slice(self, *, idle: bool) -> LeaningCommand | None:
        """This step's slice, if the engine is idle."""
        while idle and self._due:
            donor_id, due = next(iter(self._due.items()))
            start, end = due.at, min(due.at + SLICE_TOKENS, len(due.tokens))
            run = Run(donor_id, 0, 0, end, _NO_RISK)
            blocks = self._cached.locate([run], ())[0] if donor_id in self._book else []
            due.at = end
            if end == len(due.tokens) or not self._cached.reaches_end(run, blocks):
                del self._due[donor_id]
            if self._cached.reaches_end(run, blocks):
                ids = due.tokens[start:end].astype(np.int64)
                block_ids = tuple(block.block_id for block in blocks)
                return LeaningCommand(donor_id, len(due.tokens), block_ids, start, ids)
        return None

    def forget_all(self) -> None:
        self._due.clear()
