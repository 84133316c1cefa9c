"""The hash table: one 8-byte place per key, linear probing, places ordered by tag so that a rebuild is one sweep.

A place holds ``tag << 30 | head + 2**29``. A tag has 32 bits of hash and one bit that keeps gram keys (even) and trie
children (odd) apart. A head is a posting (> 0), ``GONE`` (the chain is empty, the place stays so that probes go on), or
``-(root + 1)`` for a gram whose donors live in a context trie. A colliding tag costs a comparison of tokens, never a
wrong run.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.compiled import kernel
from semblend.search.layout import STATE_TABLE_GONE, STATE_TABLE_USED, Store

TAG_BITS: Final = 33
HEAD_BITS: Final = 30
HEAD_MASK: Final = (1 << HEAD_BITS) - 1
HEAD_ZERO: Final = 1 << (HEAD_BITS - 1)
GONE: Final = -1
LOAD_LIMIT: Final = 0.8
GROWTH: Final = 1.5
ROOM: Final = 1024  # places that must be free before one more posting is linked: it may grow a trie path

_SEED: Final = np.uint64(0xA0761D6478BD642F)
_MIX: Final = np.uint64(0xE7037ED1A0B428DB)
_SHIFT: Final = np.uint64(32)
_ONE: Final = np.uint64(1)


def gram_tags(hashes: NDArray[np.uint64], namespace: int) -> NDArray[np.int64]:
    """Tags of grams in one namespace: equal content of two tenants does not even meet in the table."""
    tags: NDArray[np.int64] = _tags(hashes, np.uint64((namespace + 1) * int(_SEED) % (1 << 64)))
    return tags


@kernel
def _tags(hashes: NDArray[np.uint64], salt: np.uint64) -> NDArray[np.int64]:
    value = (hashes ^ salt) * _MIX
    value = (value ^ (value >> _SHIFT)) * _MIX
    return ((value >> _SHIFT) << _ONE).astype(np.int64)


@kernel
def child_tag(node: int, token: int) -> int:
    mixed = (int(node) * 0x9E3779B1) ^ ((int(token) & 0xFFFFFFFF) * 0x45D9F3B)
    mixed = (mixed ^ (mixed >> 15)) & 0xFFFFFFFF
    mixed = (mixed * 0x2C1B3C6D) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 13)) << 1) | 1


@kernel
def pack(tag: int, head: int) -> int:
    return (int(tag) << HEAD_BITS) | (int(head) + HEAD_ZERO)


@kernel
def head_of(entry: int) -> int:
    return (int(entry) & HEAD_MASK) - HEAD_ZERO


@kernel
def home(table: NDArray[np.int64], tag: int) -> int:
    return (int(tag) * len(table)) >> TAG_BITS


@kernel
def find_key(table: NDArray[np.int64], tag: int) -> int:
    """The place of ``tag``, or ``-1 - place`` of the empty place where it belongs."""
    place = home(table, tag)
    while True:
        entry = int(table[place])
        if entry == 0:
            return -1 - place
        if entry >> HEAD_BITS == tag:
            return place
        place += 1
        if place == len(table):
            place = 0


@kernel
def add_entry(store: Store, tag: int, head: int) -> None:
    """A new place for ``tag``, even if the tag is there already (children verify whose they are)."""
    table = store.table
    place = home(table, tag)
    while table[place] != 0:
        place += 1
        if place == len(table):
            place = 0
    table[place] = pack(tag, head)
    store.state[STATE_TABLE_USED] += 1


@kernel
def set_head(store: Store, place: int, head: int) -> None:
    """Give a key in the table another head, keeping count of the keys that have none."""
    entry = int(store.table[place])
    store.state[STATE_TABLE_GONE] += (head == GONE) - (head_of(entry) == GONE)
    store.table[place] = pack(entry >> HEAD_BITS, head)


@kernel
def rebuild(old: NDArray[np.int64], new: NDArray[np.int64]) -> int:
    """Copy every living key; returns how many. Readers keep the old table until they are done with it."""
    count = 0
    for i in range(len(old)):
        entry = int(old[i])
        if entry != 0 and head_of(entry) != GONE:
            place = home(new, entry >> HEAD_BITS)
            while new[place] != 0:
                place += 1
                if place == len(new):
                    place = 0
            new[place] = entry
            count += 1
    return count
