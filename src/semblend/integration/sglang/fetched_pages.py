"""KV that was read for donors of other replicas: pages in host memory, bounded by bytes, whole donors out at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch


class FetchedPages:
    """Used on the scheduler's thread. A donor's pages are in order; those that were not read are empty."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._held: OrderedDict[str, Sequence[torch.Tensor]] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def put(self, donor_id: str, pages: Sequence[torch.Tensor]) -> list[str]:
        """The donors that made room. One that exceeds the whole budget is named itself."""
        size = _bytes(pages)
        if size > self._budget_bytes:
            return [donor_id]
        evicted = []
        while self.held_bytes + size > self._budget_bytes:
            oldest = next(iter(self._held))
            self.drop(oldest)
            evicted.append(oldest)
        self._held[donor_id] = pages
        self.held_bytes += size
        return evicted

    def get(self, donor_id: str) -> Sequence[torch.Tensor] | None:
        if donor_id in self._held:
            self._held.move_to_end(donor_id)
        return self._held.get(donor_id)

    def ids(self) -> list[str]:
        return list(self._held)

    def drop(self, donor_id: str) -> None:
        if (pages := self._held.pop(donor_id, None)) is not None:
            self.held_bytes -= _bytes(pages)

    def clear(self) -> None:
        self._held.clear()
        self.held_bytes = 0


def _bytes(pages: Sequence[torch.Tensor]) -> int:
    return sum(page.nbytes for page in pages)
