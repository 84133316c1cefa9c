"""The engine's own storage behind HiCache as a source of pages: page hashes in, pages in memory of our own out.

Works with any ``HiCacheStorage`` through the calls that the engine itself makes: ``batch_get`` of flat pages, or
``batch_get_v1`` into a host pool. The latter gets a small pool of ours instead of the engine's, whose slots belong to
the engine. What a backend really does is shown by a round trip at the start (``prove``), not believed.
"""

from __future__ import annotations

import copy
import secrets
import threading
from collections.abc import Sequence
from typing import Any, Final

import torch

LAYOUTS: Final = ("layer_first", "page_first_direct")  # a flat page is [side, layer, token, head, dim] in both
STAGED_PAGES: Final = 32  # of one call of the storage


class PageSourceError(Exception):
    """The storage cannot be used as a source of pages; the text says why."""


class PageSource:
    """Thread-safe: one reader at a time. A page is flat, in memory of its own."""

    def __init__(self, storage: Any, pool: Any, *, is_zero_copy: bool) -> None:
        """``pool``: the engine's host pool. ``is_zero_copy``: the engine calls ``batch_get_v1``, not ``batch_get``."""
        if pool.layout not in LAYOUTS:
            raise PageSourceError(f"the host layout {pool.layout} is not supported ({' or '.join(LAYOUTS)})")
        self._engine_storage = storage
        self._is_zero_copy = is_zero_copy
        self._pool = _staging_pool(pool)
        self._storage = storage
        if is_zero_copy:
            self._storage = copy.copy(storage)  # the same connection, with another pool
            self._storage.register_mem_pool_host(self._pool)
        self._lock = threading.Lock()

    @property
    def page_tokens(self) -> int:
        return int(self._pool.page_size)

    def count_leading(self, hashes: Sequence[str]) -> int:
        """How many of the first hashes the storage has without a gap."""
        found = 0
        for at in range(0, len(hashes), STAGED_PAGES):
            batch = list(hashes[at : at + STAGED_PAGES])
            held = int(self._engine_storage.batch_exists(batch))
            found += held
            if held < len(batch):
                break
        return found

    def contains(self, page_hash: str) -> bool:
        return int(self._engine_storage.batch_exists([page_hash])) == 1

    def read(self, hashes: Sequence[str]) -> list[torch.Tensor] | None:
        """The pages; None if one of them is missing. May block for as long as the storage does."""
        pages: list[torch.Tensor] = []
        for at in range(0, len(hashes), STAGED_PAGES):
            batch = list(hashes[at : at + STAGED_PAGES])
            if int(self._engine_storage.batch_exists(batch)) < len(batch):
                return None
            with self._lock:
                found = self._read_staged(batch) if self._is_zero_copy else self._read_flat(batch)
            if found is None:
                return None
            pages += found
        return pages

    def _read_staged(self, batch: list[str]) -> list[torch.Tensor] | None:
        if not all(self._storage.batch_get_v1(batch, self._slots(len(batch)))):
            return None
        return [self._staged_page(number) for number in range(len(batch))]

    def _read_flat(self, batch: list[str]) -> list[torch.Tensor] | None:
        targets = [self._pool.get_dummy_flat_data_page() for _ in batch]
        try:
            found = self._storage.batch_get(batch, targets)
        except OSError:  # a page that is too short
            return None
        return None if found is None or any(page is None for page in found) else list(found)

    def _slots(self, pages: int) -> torch.Tensor:
        return torch.arange(pages * self.page_tokens, dtype=torch.int64)

    def _staged_page(self, number: int) -> torch.Tensor:
        page: torch.Tensor = self._pool.get_data_page(number * self.page_tokens)
        return page.flatten().clone()

    def page_in(self, pool: Any, slot: int) -> torch.Tensor:
        """A page in the engine's own host pool, from its first slot on; flat, a copy."""
        page: torch.Tensor = pool.get_data_page(slot)
        return page.flatten().clone()

    def _write(self, page_hash: str, page: torch.Tensor) -> bool:
        if not self._is_zero_copy:
            return bool(self._storage.batch_set([page_hash], [page]))
        self._pool.set_from_flat_data_page(0, page)
        return all(self._storage.batch_set_v1([page_hash], self._slots(1)))

    def prove(self) -> None:
        """Write a page, read it back, compare; raises ``PageSourceError``. The page stays until it is evicted."""
        page = torch.randn(self._pool.get_dummy_flat_data_page().shape).to(self._pool.dtype)
        written, never = secrets.token_hex(32), secrets.token_hex(32)
        with self._lock:
            if not self._write(written, page.clone()):
                raise PageSourceError("it refused a page of the self-test")
            if self._is_zero_copy:
                self._pool.kv_buffer.zero_()  # what is read must come from the storage
        if not self.contains(written) or self.contains(never):
            raise PageSourceError("it does not know which pages it has")
        found = self.read([written])
        if found is None or not torch.equal(found[0].cpu(), page):
            raise PageSourceError("a page that was written and read back is not the same")


def source_of(controller: Any) -> PageSource:
    """The source of an engine's cache controller. Raises ``PageSourceError``."""
    storage = getattr(controller, "storage_backend", None)
    if storage is None:
        raise PageSourceError("the engine has no storage (--enable-hierarchical-cache, --hicache-storage-backend)")
    is_zero_copy = controller.page_get_func.__func__ is type(controller)._page_get_zero_copy
    return PageSource(storage, controller.storage_host_pool, is_zero_copy=is_zero_copy)


def _staging_pool(pool: Any) -> Any:
    """A host pool of the same kind and layout with room for ``STAGED_PAGES``."""
    staging = copy.copy(pool)
    staging.size = STAGED_PAGES * pool.page_size
    staging.page_num = STAGED_PAGES
    shape = list(pool.kv_buffer.shape)
    shape[2 if pool.layout == "layer_first" else 1] = staging.size if pool.layout == "layer_first" else STAGED_PAGES
    staging.kv_buffer = torch.zeros(shape, dtype=pool.dtype)
    return staging
