"""Where a donor's KV is: first in device slots of the tree, then in pages of the page store in host memory.

The radix backend checks how many tokens both hold and, when a request is admitted, keeps them until they are copied.
Pages are held by reference: a page evicted in the meantime stays complete until the copy is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.utils import get_storage_hash_str

from semblend.integration.sglang.hicache_backend import SemBlendStorage
from semblend.integration.sglang.kv_pool import keys_of, values_of
from semblend.kv.rope import LayerRotations, rotate_keys


@dataclass(frozen=True, slots=True)
class DonorKV:
    """``slots`` of its first tokens, whole pages of them, and the ``pages`` that follow."""

    slots: torch.Tensor
    pages: Sequence[torch.Tensor]


def store_of(controller: Any) -> SemBlendStorage | None:
    """The engine's storage backend, if it is our page store."""
    storage = getattr(controller, "storage_backend", None)
    return storage if isinstance(storage, SemBlendStorage) else None


def stored_hashes(key: RadixKey, first_token: int, page_tokens: int) -> list[str]:
    """The engine's hashes of the whole pages from ``first_token`` on, chained from the tenant and the first page."""
    hashes: list[str] = get_storage_hash_str(key.page_aligned(page_tokens), None, page_size=page_tokens)
    return hashes[first_token // page_tokens :]


class SlotCopier:
    """Works on the pools of one tensor per layer and side, ``[slot, head, dim]``, which ``support`` checked."""

    def __init__(self, pool: Any, rotations: LayerRotations) -> None:
        self._keys = list(keys_of(pool))
        self._values = list(values_of(pool))
        self._rotations = rotations

    def copy(self, donor_slots: torch.Tensor, own_slots: torch.Tensor, shift: int) -> None:
        """``shift``: how many positions later the tokens are in the recipient."""
        if donor_slots.shape != own_slots.shape:
            raise ValueError(f"{len(donor_slots)} slots to read, {len(own_slots)} to write")
        for layer, keys in enumerate(self._keys):
            turned = rotate_keys(keys.index_select(0, donor_slots), shift, self._rotations[layer])
            keys.index_copy_(0, own_slots, turned)
        for values in self._values:
            values.index_copy_(0, own_slots, values.index_select(0, donor_slots))


class DonorCopier:
    """Fills a request's slots from both places: V as it is, K rotated to its new positions.

    ``wait`` is called before a copy: with several streams, the forward pass in flight comes first.
    """

    def __init__(
        self, pool: Any, rotations: LayerRotations, page_tokens: int, wait: Callable[[], None] = lambda: None
    ) -> None:
        self._wait = wait
        self._slots = SlotCopier(pool, rotations)
        self._keys = list(keys_of(pool))
        self._values = list(values_of(pool))
        self._rotations = rotations
        self._page_tokens = page_tokens
        self._page_shape = (2, len(self._keys), page_tokens, *self._keys[0].shape[1:])

    def copy(self, donor: DonorKV, start: int, own_slots: torch.Tensor, shift: int) -> None:
        """The donor's tokens from ``start`` on, as many as there are ``own_slots``."""
        self._wait()
        on_device = max(0, min(len(donor.slots) - start, len(own_slots)))
        if on_device:
            self._slots.copy(donor.slots[start : start + on_device], own_slots[:on_device], shift)
        if on_device < len(own_slots):
            behind = start + on_device - len(donor.slots)
            self._copy_pages(donor.pages, behind, own_slots[on_device:], shift)

    def _copy_pages(self, pages: Sequence[torch.Tensor], start: int, own_slots: torch.Tensor, shift: int) -> None:
        first, offset = divmod(start, self._page_tokens)
        last = -(-(start + len(own_slots)) // self._page_tokens)
        if last > len(pages):
            raise ValueError(f"{last} pages to read, {len(pages)} held")
        shaped = [page.view(self._page_shape) for page in pages[first:last]]
        stretch = slice(offset, offset + len(own_slots))
        for layer, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
            theirs = torch.cat([page[0, layer] for page in shaped])[stretch].to(keys)
            keys.index_copy_(0, own_slots, rotate_keys(theirs, shift, self._rotations[layer]))
            values.index_copy_(0, own_slots, torch.cat([page[1, layer] for page in shaped])[stretch].to(values))
