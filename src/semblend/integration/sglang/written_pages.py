"""Which pages this replica has put into the engine's storage, and the digest of what it put there.

Observes the engine's own backup thread, where a page is in trusted host memory. A page that the storage had already is
not vouched for: another replica wrote it, or an attacker.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from semblend.fleet.page_records import page_digest

if TYPE_CHECKING:
    from semblend.integration.border import Border
    from semblend.integration.sglang.page_source import PageSource

MAX_PAGES: Final = 1 << 17  # about 30 MB; of older pages nothing is known any more


class WrittenPages:
    """Thread-safe. ``on_stored`` is called with the hashes of pages that are in the storage now."""

    def __init__(self, on_stored: Callable[[Sequence[str]], None], max_pages: int = MAX_PAGES) -> None:
        self._on_stored = on_stored
        self._max_pages = max_pages
        self._lock = threading.Lock()
        self._known: OrderedDict[str, bytes | None] = OrderedDict()

    def stored(self, digests: dict[str, bytes | None]) -> None:
        """Pages in the storage, and the digests of those that this replica wrote; None keeps what is known."""
        with self._lock:
            for page_hash, digest in digests.items():
                self._known[page_hash] = self._known.get(page_hash) if digest is None else digest
                self._known.move_to_end(page_hash)
            while len(self._known) > self._max_pages:
                self._known.popitem(last=False)
        self._on_stored(list(digests))

    def has(self, page_hash: str) -> bool:
        with self._lock:
            return page_hash in self._known

    def digests(self, hashes: Sequence[str]) -> list[bytes | None]:
        with self._lock:
            return [self._known.get(page_hash) for page_hash in hashes]

    def clear(self) -> None:
        with self._lock:
            self._known.clear()


def bytes_of(page: torch.Tensor) -> Any:
    return page.contiguous().view(torch.uint8).numpy()


def watch(controller: Any, source: PageSource, written: WrittenPages, border: Border) -> None:
    """Observe what the engine writes from now on, until its storage is detached."""
    write, pool = controller.page_set_func, controller.storage_host_pool

    def absent(hashes: Sequence[str]) -> set[str]:
        return {page_hash for page_hash in hashes if not source.contains(page_hash)}

    def note(hashes: Sequence[str], slots: torch.Tensor, were_absent: set[str]) -> None:
        found: dict[str, bytes | None] = {}
        for number, page_hash in enumerate(hashes):
            is_own = page_hash in were_absent
            page = source.page_in(pool, int(slots[number * source.page_tokens])) if is_own else None
            found[page_hash] = None if page is None else page_digest(bytes_of(page))
        written.stored(found)

    def writing(hashes: Sequence[str], slots: torch.Tensor, *given: Any, **named: Any) -> bool:
        were_absent = border.call("fleet", "", partial(absent, hashes), set())
        is_written = bool(write(hashes, slots, *given, **named))
        if is_written:
            border.call("fleet", "", partial(note, hashes, slots, were_absent), None)
        return is_written

    controller.page_set_func = writing
