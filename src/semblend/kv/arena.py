"""Donor rows in one pinned allocation that a device reads and writes by slot, without the host touching them.

Allocated once at start-up, because pinning takes about 0.3 s per GB. Donors take whole pages, so that no order of
arrivals and evictions leaves room that cannot be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from sembase.errors import SemBlendError
from semblend.kv.donor_store import KVShape, StoreError
from semblend.kv.move import Pages

PAGE_TOKENS: Final = 16
_SPARE: Final = 16  # one page in 16 more than the budget: what donors of 256 tokens and more round up to


class PinnedMemoryError(SemBlendError):
    """The host memory cannot be made readable by the device."""


@dataclass(slots=True)
class _Donor:
    tokens: int
    pages: NDArray[np.int64]
    written: int = 0
    is_committed: bool = False


class Arena:
    """Donors by id, in pages of ``PAGE_TOKENS``. Only the books are kept here; transfers move the rows.

    A donor that is dropped frees its pages at once: transfers run in order, so that whatever still reads them comes
    before whatever writes them next.
    """

    def __init__(self, memory: torch.Tensor, shape: KVShape, max_bytes: int, page_tokens: int = PAGE_TOKENS) -> None:
        self.pages = _pages(memory, shape, page_tokens)
        self.bytes_per_token = shape.bytes_per_token
        self._page_tokens = page_tokens
        self._max_bytes = max_bytes
        self._free = list(range(int(self.pages.keys[0].shape[0]) - 1, -1, -1))
        self._donors: dict[str, _Donor] = {}
        self.bytes_held = 0

    def begin(self, donor_id: str, tokens: int) -> None:
        """Reserve room for a donor; replaces one with the same id. ``StoreError`` if it does not fit."""
        if tokens <= 0:
            raise StoreError(f"donor {donor_id}: cannot store {tokens} tokens")
        replaced = self._donors.get(donor_id)
        needed = -(-tokens // self._page_tokens)
        held_after = self.bytes_held + (tokens - (replaced.tokens if replaced else 0)) * self.bytes_per_token
        free_after = len(self._free) + (len(replaced.pages) if replaced else 0) - needed
        if held_after > self._max_bytes or free_after < 0:
            raise StoreError(f"donor {donor_id}: {held_after} bytes would exceed the ceiling of {self._max_bytes}")
        self.drop(donor_id)
        taken = np.array([self._free.pop() for _ in range(needed)], np.int64)
        self._donors[donor_id] = _Donor(tokens, taken)
        self.bytes_held += tokens * self.bytes_per_token

    def slots(self, donor_id: str, start: int, length: int, *, to_write: bool = False) -> NDArray[np.int64]:
        """Where positions of a committed donor lie, or with ``to_write`` those of one that is not committed yet."""
        donor = self._donor(donor_id)
        if donor.is_committed == to_write:
            raise StoreError(f"donor {donor_id} is {'committed already' if to_write else 'not committed'}")
        if start < 0 or length <= 0 or start + length > donor.tokens:
            raise StoreError(f"donor {donor_id}: [{start}, {start + length}) is outside its {donor.tokens} tokens")
        positions = np.arange(start, start + length)
        slots: NDArray[np.int64] = donor.pages[positions // self._page_tokens] * self._page_tokens
        return slots + positions % self._page_tokens

    def wrote(self, donor_id: str, start: int, length: int) -> None:
        """A transfer that writes these positions was submitted. Slices come in order."""
        donor = self._donor(donor_id)
        if start != donor.written:
            raise StoreError(f"donor {donor_id}: slice at {start}, but {donor.written} tokens are written")
        donor.written += length

    def commit(self, donor_id: str) -> bool:
        """All transfers into the donor are done: it can be read. False if it is incomplete or was dropped meanwhile."""
        donor = self._donors.get(donor_id)
        if donor is None or donor.written != donor.tokens:
            return False
        donor.is_committed = True
        return True

    def drop(self, donor_id: str) -> bool:
        donor = self._donors.pop(donor_id, None)
        if donor is None:
            return False
        self._free.extend(donor.pages.tolist())
        self.bytes_held -= donor.tokens * self.bytes_per_token
        return True

    def contains(self, donor_id: str) -> bool:
        donor = self._donors.get(donor_id)
        return donor is not None and donor.is_committed

    def _donor(self, donor_id: str) -> _Donor:
        donor = self._donors.get(donor_id)
        if donor is None:
            raise StoreError(f"donor {donor_id} is not stored")
        return donor


def arena_bytes(shape: KVShape, max_bytes: int, page_tokens: int = PAGE_TOKENS) -> int:
    """The memory an arena of ``max_bytes`` needs, spare pages included."""
    page = page_tokens * shape.bytes_per_token
    return (max_bytes // page) * page * (_SPARE + 1) // _SPARE // page * page


def _pages(memory: torch.Tensor, shape: KVShape, page_tokens: int) -> Pages:
    """Layers one after the other, each with all of K, then all of V: a page of one side is one stretch of memory."""
    pages = memory.numel() // (page_tokens * shape.bytes_per_token)
    if not pages:
        raise StoreError(f"{memory.numel()} bytes hold no page of {page_tokens} tokens")
    used = memory[: pages * page_tokens * shape.bytes_per_token].view(shape.dtype)
    view = used.view(shape.layers, shape.sides, pages, page_tokens, shape.heads, shape.head_dim)
    return Pages(*(tuple(view[:, side]) for side in range(shape.sides)))
