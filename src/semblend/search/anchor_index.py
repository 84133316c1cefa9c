"""Donors by their anchors: add, remove and find every equal run, within a byte budget, with concurrent readers.

One writer at a time (a lock), any number of readers (no lock). ``find`` costs the recipient's own anchors, not the
number of donors. Donors are evicted in order of use (second chance): a donor that a plan used since the last sweep
stays.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, DonorError
from semblend.contract import Namespace
from semblend.search import heads
from semblend.search.context_trie import CHAIN, release_nodes
from semblend.search.donors import read_tokens, release_tokens, shared_prefixes
from semblend.search.epochs import Epochs
from semblend.search.layout import (
    DONOR_BYTES,
    DONOR_LIVE,
    DONOR_NAMESPACE,
    DONOR_NEWER,
    DONOR_OLDER,
    DONOR_POSTS,
    NODE_BYTES,
    PAGE,
    PAGE_BYTES,
    POST_BYTES,
    STATE_CROWDED,
    STATE_NODE_RETIRED,
    STATE_NODE_USED,
    STATE_POST_USED,
    STATE_VERSION,
    accounted_bytes,
)
from semblend.search.postings import release_postings
from semblend.search.runs import RUN_SLOT, SPARE_BYTES, find_runs, link_donor, store_donor, unlink_donor
from semblend.search.segments import SegmentSpace
from semblend.search.table import gram_tags

MIN_BUDGET_BYTES: Final = 1 << 18
MAX_BUDGET_BYTES: Final = 1 << 36  # 64 GiB: about five million donors of 2,048 tokens; ids are 32 bits wide
WORK_PER_LOOKUP: Final = 1 << 22  # tokens compared, about a nanosecond each; only adversarial prompts come near it
WORK_PER_TOKEN: Final = 16
_RETRIES: Final = 16
_ENDS: Final = 0  # slot 0 is the ring's sentinel: newest behind it, oldest before it


def _watch_forks(index: AnchorIndex) -> None:
    """In a forked child the parent's readers do not exist, and a writer that was active at the fork left its work
    unfinished.
    """
    reference = weakref.ref(index)

    def after_fork() -> None:
        forked = reference()
        if forked is not None:
            forked.recover_after_fork()

    os.register_at_fork(after_in_child=after_fork)


class AnchorSet(NamedTuple):
    """What the index needs of a prompt: the positions of its anchors and their hashes."""

    positions: NDArray[np.int32]
    hashes: NDArray[np.uint64]


class FoundRuns(NamedTuple):
    """Maximal equal runs, one row each: (index into ``donor_ids``, donor start, target start, length)."""

    rows: NDArray[np.int64]
    donor_ids: tuple[str, ...]
    slots: tuple[int, ...]
    truncated: bool

    def without(self, gone: frozenset[str]) -> FoundRuns:
        """The runs of all other donors."""
        left = [i for i, donor_id in enumerate(self.donor_ids) if donor_id not in gone]
        return self._replace(rows=self.rows[np.isin(self.rows[:, RUN_SLOT], left)])


class AnchorIndex:
    """``fingerprint`` maps donor tokens to the anchors to index; it must be deterministic, because removal calls it
    again.
    """

    def __init__(
        self,
        budget_bytes: int,
        fingerprint: Callable[[NDArray[np.uint32]], AnchorSet],
        gram: int,
        guarantee: int,
    ) -> None:
        if budget_bytes < MIN_BUDGET_BYTES:
            raise ConfigurationError(f"a budget of {budget_bytes} bytes is below the minimum of {MIN_BUDGET_BYTES}")
        if budget_bytes > MAX_BUDGET_BYTES:
            raise ConfigurationError(f"a budget of {budget_bytes} bytes is above the maximum of {MAX_BUDGET_BYTES}")
        self.budget_bytes = budget_bytes
        self._fingerprint = fingerprint
        self._gram = gram
        self._guarantee = guarantee
        self._clear()
        _watch_forks(self)

    def _clear(self) -> None:
        self._epochs = Epochs()
        self._space = SegmentSpace(self.budget_bytes, self._epochs)
        self._store = self._space.store
        self._lock = threading.Lock()
        self._slots: dict[str, int] = {}
        self._ids: list[str | None] = [None]  # by slot
        self._namespaces: dict[Namespace, list[int]] = {}  # namespace -> [number, donors]
        self._names: dict[int, Namespace] = {}
        self._next_namespace = 1
        self._free_slots: list[int] = []

    def recover_after_fork(self) -> None:
        if self._lock.locked():
            self._clear()
        else:
            self._epochs.forget_readers()

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, donor_id: str) -> bool:
        return donor_id in self._slots

    def memory_bytes(self) -> int:
        """Bytes held by donors, postings, tries and table, with an estimate for the id strings."""
        return accounted_bytes(self._store, len(self._ids) - 1 - len(self._free_slots))

    def add(self, donor_id: str, tokens: NDArray[np.uint32], namespace: Namespace) -> list[str]:
        """Make a donor findable, replacing one of the same id. Returns the ids evicted for it.

        A donor that does not fit raises an error; an older donor with the same id is removed in any case.
        """
        anchors = self._fingerprint(tokens)
        pages = -(-len(tokens) // PAGE)
        need = pages * (PAGE_BYTES + 8) + len(anchors.positions) * POST_BYTES + DONOR_BYTES
        with self._lock:
            if donor_id in self._slots:
                self._remove(donor_id)
            self._epochs.release_unseen()
            if need > self.budget_bytes // 2:
                raise DonorError(f"donor '{donor_id}' needs {need} bytes, over half the budget of {self.budget_bytes}")
            evicted = self._make_room(need, None)
            slot = self._take_slot()
            number = self._enter_namespace(namespace)
            store_donor(self._store, slot, number, tokens, heads.WEIGHTS)
            self._ids[slot] = donor_id
            self._slots[donor_id] = slot
            self._put_newest(slot)
            self._store.used[slot] = 0
            # Live before it is linked: a posting that readers skip could precede one they need.
            self._store.donors[slot, DONOR_LIVE] = 1
            complete = False
            try:
                evicted += self._link(slot, tokens, anchors, number)
                evicted += self._make_room(0, slot)
                complete = True
            finally:
                if not complete:  # a donor is findable as a whole or not at all
                    self._remove(donor_id)
            return evicted

    def remove(self, donor_id: str) -> bool:
        with self._lock:
            if donor_id not in self._slots:
                return False
            self._remove(donor_id)
            self._epochs.release_unseen()
            return True

    def tokens_of(self, donor_id: str) -> NDArray[np.uint32] | None:
        """The donor's tokens, or None if it is not registered, or no longer."""
        with self._epochs.reading():
            slot = self._slots.get(donor_id)
            if slot is None:
                return None
            tokens: NDArray[np.uint32] = read_tokens(self._store, slot)
            return tokens if self._slots.get(donor_id) == slot else None

    def namespace_of(self, donor_id: str) -> Namespace | None:
        slot = self._slots.get(donor_id)
        return None if slot is None else self._names.get(int(self._store.donors[slot, DONOR_NAMESPACE]))

    def find(self, tokens: NDArray[np.uint32], anchors: AnchorSet, namespace: Namespace, least: int) -> FoundRuns:
        """Every maximal run of at least ``least`` tokens that contains an anchor."""
        nothing = FoundRuns(np.empty((0, 4), np.int64), (), (), False)
        entry = self._namespaces.get(namespace)
        if entry is None or not len(anchors.positions):
            return nothing
        tags = gram_tags(anchors.hashes, entry[0])
        rows = np.empty((4 * CHAIN * len(tags), 4), np.int64)  # the most there can be; untouched rows cost nothing
        shape = (self._gram, self._guarantee, least)
        work_limit = WORK_PER_LOOKUP + WORK_PER_TOKEN * len(tokens)
        store = self._store
        with self._epochs.reading():
            for _ in range(_RETRIES):
                version = int(store.state[STATE_VERSION])
                count, truncated = find_runs(
                    store, tokens, anchors.positions, tags, entry[0], shape, heads.WEIGHTS, work_limit, rows
                )
                found = rows[:count]
                alive = store.donors[found[:, RUN_SLOT], DONOR_LIVE] == 1
                if version % 2 == 0 and version == store.state[STATE_VERSION] and alive.all():
                    break
                time.sleep(0)  # a trie changed its shape meanwhile, or a donor left: look again
            else:
                truncated = True
            if not count:
                return nothing._replace(truncated=truncated)
            found = found[alive]
            slots: dict[int, int] = {}
            index = [slots.setdefault(slot, len(slots)) for slot in found[:, RUN_SLOT].tolist()]
            ids = tuple(self._ids[slot] or "" for slot in slots)
        found[:, RUN_SLOT] = index
        return FoundRuns(found, ids, tuple(slots), truncated)

    def reading(self) -> AbstractContextManager[None]:
        """Inside the block, no slot that was read is given to another donor."""
        return self._epochs.reading()

    def shared_prefixes(self, slots: Sequence[int], tokens: NDArray[np.uint32]) -> NDArray[np.int64]:
        """How many of each donor's first tokens equal the recipient's."""
        shared: NDArray[np.int64] = shared_prefixes(self._store, np.array(slots, np.int64), tokens)
        return shared

    def slot_of(self, donor_id: str) -> int | None:
        return self._slots.get(donor_id)

    def confirm(self, donors: Sequence[tuple[str, int]]) -> frozenset[str]:
        """The donors that are no longer in their slot; the others are marked as used by a plan."""
        gone = frozenset(donor_id for donor_id, slot in donors if self._slots.get(donor_id) != slot)
        self._store.used[[slot for donor_id, slot in donors if donor_id not in gone]] = 1  # readers never wait
        return gone

    # -- writers, under the lock ------------------------------------------------------------------------------------

    def _link(self, slot: int, tokens: NDArray[np.uint32], anchors: AnchorSet, namespace: int) -> list[str]:
        """Link all anchors, growing the table or evicting donors as often as necessary."""
        tags = gram_tags(anchors.hashes, namespace)
        evicted: list[str] = []
        done = self._link_from(0, slot, tokens, anchors.positions, tags)
        while done < len(tags):
            if self._store.state[STATE_CROWDED]:
                self._space.relieve()
            else:
                evicted += self._make_room(2 * SPARE_BYTES, slot)
            done = self._link_from(done, slot, tokens, anchors.positions, tags)
        return evicted

    def _link_from(
        self,
        begin: int,
        slot: int,
        tokens: NDArray[np.uint32],
        positions: NDArray[np.int32],
        tags: NDArray[np.int64],
    ) -> int:
        state = self._store.state
        held = int(state[STATE_POST_USED]) * POST_BYTES + int(state[STATE_NODE_USED]) * NODE_BYTES
        ceiling = self.budget_bytes - self.memory_bytes() + held
        return int(link_donor(self._store, slot, tokens, positions, tags, begin, self._gram, ceiling))

    def _make_room(self, need: int, keep: int | None) -> list[str]:
        """Evict donors, the least used first, until ``need`` more bytes fit. ``keep`` is the slot being filled."""
        evicted: list[str] = []
        while self.memory_bytes() + need > self.budget_bytes:
            oldest = self._oldest_unused(keep)
            donor_id = None if oldest is None else self._ids[oldest]
            if donor_id is None:
                raise DonorError(f"{need} more bytes do not fit into the budget of {self.budget_bytes}")
            evicted.append(donor_id)
            self._remove(donor_id)
            self._epochs.release_all()
        return evicted

    def _oldest_unused(self, keep: int | None) -> int | None:
        donors, used = self._store.donors, self._store.used
        for _ in range(2 * len(self._slots) + 1):
            slot = int(donors[_ENDS, DONOR_NEWER])
            if slot == _ENDS:
                return None
            if slot != keep and not used[slot]:
                return slot
            if slot == keep and len(self._slots) == 1:
                return None
            used[slot] = 0
            self._take_out(slot)
            self._put_newest(slot)
        return None

    def _remove(self, donor_id: str) -> None:
        slot = self._slots[donor_id]
        store = self._store
        number = int(store.donors[slot, DONOR_NAMESPACE])
        tokens = read_tokens(store, slot)
        anchors = self._fingerprint(tokens)
        unlink_donor(store, slot, tokens, anchors.positions, gram_tags(anchors.hashes, number), self._gram)
        # Unlinked first: while it still counts as live, it cannot hide from a reader those that agree less with it.
        store.donors[slot, DONOR_LIVE] = 0
        del self._slots[donor_id]
        self._take_out(slot)
        self._leave_namespace(number)
        postings = int(store.donors[slot, DONOR_POSTS])
        nodes = int(store.state[STATE_NODE_RETIRED])
        store.state[STATE_NODE_RETIRED] = 0

        def release() -> None:
            release_postings(self._store, postings)
            release_nodes(self._store, nodes)
            release_tokens(self._store, slot)
            self._ids[slot] = None
            self._free_slots.append(slot)

        self._epochs.retire(release)

    def _take_slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        self._ids.append(None)
        return len(self._ids) - 1

    def _enter_namespace(self, namespace: Namespace) -> int:
        entry = self._namespaces.setdefault(namespace, [self._next_namespace, 0])
        if entry[1] == 0:
            self._names[entry[0]] = namespace
            self._next_namespace += 1
        entry[1] += 1
        return entry[0]

    def _leave_namespace(self, number: int) -> None:
        entry = self._namespaces[self._names[number]]
        entry[1] -= 1
        if entry[1] == 0:
            del self._namespaces[self._names.pop(number)]

    def _put_newest(self, slot: int) -> None:
        donors = self._store.donors
        newest = int(donors[_ENDS, DONOR_OLDER])
        donors[slot, DONOR_OLDER] = newest
        donors[slot, DONOR_NEWER] = _ENDS
        donors[newest, DONOR_NEWER] = slot
        donors[_ENDS, DONOR_OLDER] = slot

    def _take_out(self, slot: int) -> None:
        donors = self._store.donors
        newer, older = int(donors[slot, DONOR_NEWER]), int(donors[slot, DONOR_OLDER])
        donors[older, DONOR_NEWER] = newer
        donors[newer, DONOR_OLDER] = older
