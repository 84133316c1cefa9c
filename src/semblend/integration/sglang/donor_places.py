"""Where a donor's KV is now: device slots of the tree, pages of our own page store, or pages read for the fleet.

Whether a donor is complete is asked twice: when a request is looked up, and again, under a lock, when it is admitted.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixKey

from semblend.integration.sglang.donor_kv import DonorKV, store_of, stored_hashes
from semblend.integration.sglang.request_tracker import Reach

if TYPE_CHECKING:
    from semblend.integration.sglang.fetched_pages import FetchedPages

_NO_SLOTS = torch.empty(0, dtype=torch.int64)


def tree_key(like: RadixKey, tokens: NDArray[np.uint32], needed: int, page_tokens: int) -> RadixKey:
    """The first ``needed`` tokens as a key of the tree, which holds whole pages; of the tenant of ``like``."""
    whole = -(-needed // page_tokens) * page_tokens
    ids = array("q", tokens[:whole].astype(np.int64).tobytes())
    return RadixKey(ids, like.extra_key, cache_salt=like.cache_salt)


def path_to(tree: Any, node: Any, extra_key: str | None) -> torch.Tensor:
    """Slots from the root of the request's tree down to ``node``."""
    path: torch.Tensor = tree.tree_core.collect_full_device_indices(node, tree.root_node_handle(extra_key))
    return path


class DonorPlaces:
    def __init__(self, tree: Any, fetched: FetchedPages | None) -> None:
        """``tree``: the engine's cache."""
        self._tree = tree
        self._fetched = fetched

    def match(self, key: RadixKey) -> Any:
        """What the device holds of a key."""
        return self._tree._match_tree(MatchPrefixParams(key=key))

    def resident(self, like: RadixKey, donor_id: str, donor: NDArray[np.uint32], needed: int) -> Reach:
        """How many of a donor's first ``needed`` tokens can be loaded, in whole pages."""
        if self._fetched is not None and self._fetched.get(donor_id) is not None:
            return Reach(needed, "host")
        page = self._tree.page_size
        key = tree_key(like, donor, needed, page)
        on_device = self.match(key).device_prefix_len
        store = store_of(self._tree.cache_controller)
        if on_device >= needed or store is None:
            return Reach(on_device)
        return Reach(on_device + page * store.batch_exists(stored_hashes(key, on_device, page)), "host")

    def hold(
        self, like: RadixKey, donor_id: str, donor: NDArray[np.uint32], needed: int, locks: list[Any]
    ) -> tuple[DonorKV | None, int]:
        """A donor's KV, locked until it is copied; or None. And how many of its first tokens are still held."""
        if self._fetched is not None and (fetched := self._fetched.get(donor_id)) is not None:
            return DonorKV(_NO_SLOTS, fetched), needed
        page = self._tree.page_size
        key = tree_key(like, donor, needed, page)
        found = self.match(key)
        on_device, store = found.device_prefix_len, store_of(self._tree.cache_controller)
        pages: list[torch.Tensor] = []
        if on_device < needed and store is not None:
            pages = store.leading_pages(stored_hashes(key, on_device, page))
        reach = on_device + page * len(pages)
        if reach < needed:
            return None, reach
        locks.append(self._tree.lock(found.last_device_node))  # an eviction for room must not take the donor
        return DonorKV(path_to(self._tree, found.last_device_node, key.extra_key), pages), reach
