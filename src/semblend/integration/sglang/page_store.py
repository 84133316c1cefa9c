"""KV pages in host memory, bounded by bytes, least recently used out first. No engine, no tensor library.

A namespace, the engine's chained hash of a page and the page go in; that page, or nothing, comes out. A page costs its
own bytes plus about 300 for its keys; every operation is constant time under one lock, so any thread may call.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


Page = TypeVar("Page", bound=Sized)


@dataclass(frozen=True, slots=True)
class PageNamespace:
    """What must be equal before the bytes of a page mean the same KV. Tenants are in the page hashes already."""

    model: str
    dtype: str
    layout: str
    page_tokens: int
    layers: int
    heads: int
    head_dim: int
    v_head_dim: int
    ranks: tuple[int, ...]  # rank and size of every way the model is cut

    def digest(self) -> str:
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class StoreStats:
    pages: int
    held_bytes: int
    budget_bytes: int
    found: int
    missed: int
    evicted: int
    refused: int


class PageStore(Generic[Page]):
    """Exact keys only: a page is found under the namespace and hash it was put in with, and under no other."""

    def __init__(self, budget_bytes: int) -> None:
        if budget_bytes <= 0:
            raise ValueError(f"the budget of a page store must be positive, not {budget_bytes} bytes")
        self.budget_bytes = budget_bytes
        self._pages: OrderedDict[tuple[str, str], Page] = OrderedDict()
        self._held_bytes = 0
        self._found = self._missed = self._evicted = self._refused = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._pages)

    def put(self, namespace: str, page_hash: str, page: Page) -> bool:
        """False if the page exceeds the whole budget. A page that is already stored becomes the most recently used."""
        key, size = (namespace, page_hash), page.nbytes
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
                return True
            if size > self.budget_bytes:
                self._refused += 1
                return False
            while self._held_bytes + size > self.budget_bytes:
                _, oldest = self._pages.popitem(last=False)
                self._held_bytes -= oldest.nbytes
                self._evicted += 1
            self._pages[key] = page
            self._held_bytes += size
            return True

    def get(self, namespace: str, page_hash: str) -> Page | None:
        key = (namespace, page_hash)
        with self._lock:
            page = self._pages.get(key)
            if page is None:
                self._missed += 1
                return None
            self._found += 1
            self._pages.move_to_end(key)
            return page

    def count_leading(self, namespace: str, hashes: Sequence[str]) -> int:
        """How many of the first hashes are held without a gap; does not count as a use."""
        with self._lock:
            for number, page_hash in enumerate(hashes):
                if (namespace, page_hash) not in self._pages:
                    return number
        return len(hashes)

    def leading(self, namespace: str, hashes: Sequence[str]) -> list[Page]:
        """The pages of the first hashes up to the first gap. Later pages are useless without earlier ones, so the
        first become the most recently used."""
        with self._lock:
            pages: list[Page] = []
            for page_hash in hashes:
                page = self._pages.get((namespace, page_hash))
                if page is None:
                    self._missed += 1
                    break
                pages.append(page)
            for page_hash in reversed(hashes[: len(pages)]):
                self._pages.move_to_end((namespace, page_hash))
            self._found += len(pages)
            return pages

    def clear(self) -> None:
        with self._lock:
            self._pages.clear()
            self._held_bytes = 0

    def stats(self) -> StoreStats:
        with self._lock:
            return StoreStats(
                pages=len(self._pages),
                held_bytes=self._held_bytes,
                budget_bytes=self.budget_bytes,
                found=self._found,
                missed=self._missed,
                evicted=self._evicted,
                refused=self._refused,
            )
