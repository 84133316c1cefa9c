"""Count reuse in a stream of requests: exact prefixes, and runs of equal tokens that an earlier request had anywhere.

In, per request: a namespace (a tenant; two namespaces share nothing) and its content digests, computed from tokens at
hand (``digest_tokens``) or read from a redacted record. Out, per request: the tokens of its longest exact prefix, and
the runs beyond it with their donors. Text and redacted records go through the same mechanism.

    counter = ReuseCounter(memory_bytes=1 << 30)
    for record in read_records(path):
        found = counter.add(record.tenant_id, digests_of(record))
        found.prefix_tokens, found.reusable_tokens, found.runs  # rows of (donor, donor_start, start, length)

Guarantee: a repeated run of at least ``GUARANTEE`` (64) tokens shares a winnowed anchor with the request that had it
before. Each anchor names the last request that had it, whose digests are compared on both sides of it. Two bits per
token let a run appear too long by 1/3 of a token at each end on average.

Memory: at most ``memory_bytes`` (one request that needs more is still counted), about 3 bytes per distinct token. When
the budget is full, what was not seen for the longest time is forgotten: ``oldest_request`` is how far back the counter
sees, and ``forgotten_tokens`` estimates from a sample of everything ever seen how many reusable tokens it therefore
missed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import HAS_COMPILER
from sembase.errors import ConfigurationError
from sembase.trace.content_digests import GRAM, GUARANTEE, ContentDigests
from sembase.trace.reuse_tables import (
    DONOR,
    FREE,
    LENGTH,
    START,
    add_keys,
    anchor_hashes,
    are_known,
    compose_runs,
    copy_entries,
    find_runs,
    insert_anchors,
    match_prefix,
    mix,
)
from sembase.winnowing import window_minima

MIN_MEMORY_BYTES: Final = 16 << 20
PREFIX_STEP: Final = 16  # tokens; a block of a prefix cache is a multiple of it
ANCHOR: Final = 17  # digests under one anchor: 34 bits that cover 32 tokens
WINDOW: Final = GUARANTEE - (GRAM - 1) - (ANCHOR - 1)  # of this many anchors, one is selected: 33
TOKENS_PER_ANCHOR: Final = (WINDOW + 1) / 2
_FIRST: Final = GRAM - 1 + ANCHOR - 1  # the first digest that ends an anchor of whole grams
_ANCHOR_BITS: Final = np.uint64((1 << 2 * ANCHOR) - 1)
_MAX_LOAD: Final = 0.6
_FORGET: Final = 0.3  # of the entries, when the budget is full
_SAMPLE_SLOTS: Final = 1 << 18
_MIN_FREE_SLOTS: Final = 0.125  # of all donor slots; below it there are twice as many
_NONE: Final = np.empty((0, 4), np.int64)


class RequestReuse(NamedTuple):
    """Requests are numbered from 0 in the order they were added.

    ``runs`` are disjoint, ascending, and begin at or after the prefix; each row is (donor, donor_start, start, length)
    in tokens.
    """

    number: int
    prompt_tokens: int
    prefix_tokens: int
    prefix_donor: int | None
    runs: NDArray[np.int64]

    @property
    def run_tokens(self) -> int:
        return int(self.runs[:, LENGTH].sum())

    @property
    def reusable_tokens(self) -> int:
        """Prefix and runs together."""
        return self.prefix_tokens + self.run_tokens


class ReuseCounter:
    """``min_run_tokens`` is at least ``GUARANTEE``; ``block_tokens`` is the block size of the prefix cache."""

    def __init__(
        self, *, memory_bytes: int = 1 << 30, min_run_tokens: int = GUARANTEE, block_tokens: int = PREFIX_STEP
    ) -> None:
        if memory_bytes < MIN_MEMORY_BYTES:
            raise ConfigurationError(f"memory_bytes must be at least {MIN_MEMORY_BYTES}")
        if min_run_tokens < GUARANTEE:
            raise ConfigurationError(f"min_run_tokens must be at least {GUARANTEE}: shorter runs are not always found")
        if block_tokens < PREFIX_STEP or block_tokens % PREFIX_STEP:
            raise ConfigurationError(f"block_tokens must be a multiple of {PREFIX_STEP}")
        self.memory_bytes, self.min_run_tokens, self.block_tokens = memory_bytes, min_run_tokens, block_tokens
        self.requests = 0
        self.oldest_request = 0
        self._seeds: dict[Hashable, np.uint64] = {}  # by namespace
        self._prefixes, self._anchors = _Table(1 << 12), _Table(1 << 12)
        self._donors = _Donors()
        self._sample = _Sample()

    @property
    def held_bytes(self) -> int:
        return self._prefixes.held_bytes + self._anchors.held_bytes + self._donors.held_bytes + self._sample.held_bytes

    @property
    def forgotten_tokens(self) -> int:
        """Estimate of the reusable tokens not counted because their earlier occurrence was forgotten.

        Anchors that are equal by chance (34 bits) add 0.6 % of the tokens at 10^8 anchors, in proportion to them.
        """
        return round(self._sample.missed * TOKENS_PER_ANCHOR)

    def add(self, namespace: Hashable, digests: ContentDigests) -> RequestReuse:
        """The reuse of one request from earlier ones; then the request itself can be a donor."""
        number, tokens, words = self.requests, digests.token_count, digests.words()
        seed = self._seed(namespace)
        prefix, prefix_donor = self._match_prefix(words, tokens, seed, number)
        ends, hashes = _select_anchors(words, tokens, seed)
        runs = self._find_runs(words, tokens, prefix, ends, hashes)
        if len(ends):
            self._note_forgotten(ends, hashes, prefix, runs)
            self._insert(words, tokens, ends, hashes, number)
        self.requests += 1
        return RequestReuse(number, tokens, prefix, prefix_donor, runs)

    def _seed(self, namespace: Hashable) -> np.uint64:
        seed = self._seeds.get(namespace)
        if seed is None:
            seed = self._seeds[namespace] = np.uint64(mix(np.array([len(self._seeds) + 1], np.uint64))[0])
        return seed

    def _match_prefix(
        self, words: NDArray[np.uint64], tokens: int, seed: np.uint64, number: int
    ) -> tuple[int, int | None]:
        steps = words.view(np.uint32)[: tokens // PREFIX_STEP]
        self._make_room(self._prefixes, len(steps))
        table = self._prefixes
        matched, donor, added = match_prefix(steps, seed, number, table.keys, table.values)
        table.used += added
        whole = matched * PREFIX_STEP // self.block_tokens * self.block_tokens
        return whole, int(donor) if whole else None

    def _find_runs(
        self,
        words: NDArray[np.uint64],
        tokens: int,
        prefix: int,
        ends: NDArray[np.int64],
        hashes: NDArray[np.uint64],
    ) -> NDArray[np.int64]:
        table, donors = self._anchors, self._donors
        found = np.empty((len(ends), 4), np.int64)
        count = find_runs(
            words,
            tokens,
            prefix,
            ends,
            hashes,
            table.keys,
            table.values,
            donors.words,
            donors.starts,
            donors.tokens,
            WINDOW - 1,
            self.min_run_tokens,
            found,
        )
        if not count:
            return _NONE
        found = found[:count][np.argsort(found[:count, START], kind="stable")]
        composed = np.empty((count, 4), np.int64)
        composed = composed[: compose_runs(found, prefix, composed)]
        composed[:, DONOR] = donors.numbers[composed[:, DONOR]]
        return composed

    def _insert(
        self,
        words: NDArray[np.uint64],
        tokens: int,
        ends: NDArray[np.int64],
        hashes: NDArray[np.uint64],
        number: int,
    ) -> None:
        self._make_room(self._anchors, len(ends))
        donors, table = self._donors, self._anchors
        if donors.must_grow(len(words)) and self.held_bytes + 8 * donors.next_size(len(words)) > self.memory_bytes:
            self._forget(self._anchors)
        slot = donors.add(words, tokens, number)
        table.used += insert_anchors(ends, hashes, slot, table.keys, table.values, donors.anchors)

    def _make_room(self, table: _Table, entries: int) -> None:
        while table.used + entries > _MAX_LOAD * len(table.keys):
            is_affordable = self.held_bytes + 2 * table.held_bytes <= self.memory_bytes
            if is_affordable or not self._forget(table):
                table.rebuild(2 * len(table.keys), table.values != FREE)

    def _forget(self, full: _Table) -> bool:
        """Forget what was last seen before a request such that ``full`` loses a good part. False: nothing to forget."""
        owners = self._owners(full)
        if not len(owners):
            return False
        floor = int(np.partition(owners, int(_FORGET * len(owners)))[int(_FORGET * len(owners))]) + 1
        self.oldest_request = min(floor, self.requests)
        self._prefixes.rebuild(len(self._prefixes.keys), self._prefixes.values >= self.oldest_request)
        places = self._anchors.values
        is_kept = (places != FREE) & (self._donors.numbers[places >> 32] >= self.oldest_request)
        self._anchors.rebuild(len(places), is_kept)
        self._donors.forget_before(self.oldest_request)
        return True

    def _owners(self, table: _Table) -> NDArray[np.int64]:
        """The numbers of the requests that had each entry last."""
        held = table.values[table.values != FREE]
        return held if table is self._prefixes else np.asarray(self._donors.numbers[held >> 32])

    def _note_forgotten(
        self, ends: NDArray[np.int64], hashes: NDArray[np.uint64], prefix: int, runs: NDArray[np.int64]
    ) -> None:
        sampled = self._sample.is_sampled(hashes)
        if self.oldest_request and sampled.any():
            at = np.searchsorted(runs[:, START], ends[sampled], side="right") - 1
            stops = np.concatenate([runs[:, START] + runs[:, LENGTH], [0]])
            is_missed = (ends[sampled] >= prefix) & (ends[sampled] >= stops[at])
            is_missed &= ~are_known(hashes[sampled], self._anchors.keys, self._anchors.values)
            self._sample.count_missed(hashes[sampled][is_missed])
        self._sample.add(hashes[sampled])


def _select_anchors(
    words: NDArray[np.uint64], tokens: int, seed: np.uint64
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Where the selected anchors end, and what identifies them in this namespace."""
    if tokens < GUARANTEE:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    if HAS_COMPILER:
        hashes = anchor_hashes(words, GRAM - 1, tokens - ANCHOR + 1, _ANCHOR_BITS, seed)
    else:
        hashes = anchor_hashes_vectorised(words, tokens, seed)
    selected = window_minima(hashes, WINDOW)
    return selected + _FIRST, hashes[selected]


def anchor_hashes_vectorised(words: NDArray[np.uint64], tokens: int, seed: np.uint64) -> NDArray[np.uint64]:
    """With numpy alone: the path without a compiler, and the compiled path's oracle."""
    first = np.arange(GRAM - 1, tokens - ANCHOR + 1)
    shift = ((first & 31) << 1).astype(np.uint64)
    padded = np.concatenate([words, np.zeros(1, np.uint64)])
    low, high = padded[first >> 5] >> shift, padded[(first >> 5) + 1] << np.uint64(1) << (np.uint64(63) - shift)
    return mix(((low | high) & _ANCHOR_BITS) ^ seed)


class _Table:
    """Keys to numbers by open addressing; 16 bytes per entry."""

    def __init__(self, size: int) -> None:
        self.keys = np.zeros(size, np.uint64)
        self.values = np.full(size, FREE, np.int64)
        self.used = 0

    @property
    def held_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def rebuild(self, size: int, keep: NDArray[np.bool_]) -> None:
        kept = _Table(size)
        self.used = copy_entries(self.keys, self.values, keep, kept.keys, kept.values)
        self.keys, self.values = kept.keys, kept.values


class _Donors:
    """Digests of the requests that anchors name, one after the other; a request that no anchor names is dropped."""

    def __init__(self) -> None:
        self.words = np.zeros(1 << 12, np.uint64)
        self.numbers = np.zeros(256, np.int64)
        self.starts, self.tokens, self.anchors = (np.zeros(256, np.int64) for _ in range(3))
        self._used = 0  # words
        self._slots = 0
        self._free: list[int] = []

    @property
    def held_bytes(self) -> int:
        return self.words.nbytes + 4 * self.numbers.nbytes

    def must_grow(self, words: int) -> bool:
        """Whether more than half of the room is needed: below that, moving the rest together is enough."""
        return self._used + words > len(self.words) and 2 * (self._live_words() + words) > len(self.words)

    def next_size(self, words: int) -> int:
        size = len(self.words)
        while 2 * (self._live_words() + words) > size:
            size *= 2
        return size

    def add(self, words: NDArray[np.uint64], tokens: int, number: int) -> int:
        """The slot of the request. The arrays may be replaced."""
        if self._used + len(words) > len(self.words):
            self._move_together(self.next_size(len(words)))
        slot = self._free_slot()
        self.words[self._used : self._used + len(words)] = words
        self.numbers[slot], self.starts[slot], self.tokens[slot], self.anchors[slot] = number, self._used, tokens, 0
        self._used += len(words)
        return slot

    def forget_before(self, number: int) -> None:
        self.anchors[: self._slots][self.numbers[: self._slots] < number] = 0

    def _live_words(self) -> int:
        named = self.anchors[: self._slots] > 0
        return int(_words_of(self.tokens[: self._slots][named]).sum())

    def _move_together(self, size: int) -> None:
        named = np.flatnonzero(self.anchors[: self._slots] > 0)
        named = named[np.argsort(self.starts[named])]
        words = self.words if size == len(self.words) else np.zeros(size, np.uint64)
        used = 0
        for slot, start, count in zip(
            named.tolist(), self.starts[named].tolist(), _words_of(self.tokens[named]).tolist(), strict=True
        ):
            words[used : used + count] = self.words[start : start + count]
            self.starts[slot] = used
            used += count
        self.words, self._used = words, used

    def _free_slot(self) -> int:
        if not self._free and self._slots == len(self.numbers):
            self._free = np.flatnonzero(self.anchors == 0).tolist()
            if len(self._free) <= _MIN_FREE_SLOTS * self._slots:  # looking for them again would cost more than room
                self._grow()
        if self._free:
            return int(self._free.pop())
        self._slots += 1
        return self._slots - 1

    def _grow(self) -> None:
        for name in ("numbers", "starts", "tokens", "anchors"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros_like(column)]))


class _Sample:
    """Anchors ever seen whose hash is a multiple of a power of two; when it is full, every other one is dropped."""

    def __init__(self) -> None:
        self._table = _Table(_SAMPLE_SLOTS)
        self._rate = 1
        self.missed = 0  # anchors, scaled up

    @property
    def held_bytes(self) -> int:
        return self._table.held_bytes

    def is_sampled(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        # Neither the low bits, which place a key, nor the high ones, which are small in selected anchors.
        return np.asarray((hashes >> np.uint64(28)) & np.uint64(self._rate - 1) == 0)

    def count_missed(self, hashes: NDArray[np.uint64]) -> None:
        self.missed += self._rate * int(are_known(hashes, self._table.keys, self._table.values).sum())

    def add(self, hashes: NDArray[np.uint64]) -> None:
        while self._table.used + len(hashes) > _MAX_LOAD * _SAMPLE_SLOTS:
            self._rate *= 2
            self._table.rebuild(_SAMPLE_SLOTS, (self._table.values != FREE) & self.is_sampled(self._table.keys))
            hashes = hashes[self.is_sampled(hashes)]
        self._table.used += add_keys(hashes, self._table.keys, self._table.values)


def _words_of(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    return (tokens + 31) >> 5
