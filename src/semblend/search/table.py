"""The hash table: one 8-byte place per key, linear probing, in segments that grow one at a time.

A place holds ``tag << 30 | head + 2**29``. A tag has 32 bits of hash and one bit that keeps gram keys (even) and trie
children (odd) apart; its highest bits choose the segment. A head is a posting (> 0), ``GONE`` (the chain is empty, the
place stays so that probes continue), or ``-(root + 1)`` for a gram whose donors live in a context trie. A colliding tag
costs a comparison of tokens, never a wrong run.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from semblend.search.layout import SEGMENT_EXTENT, SEGMENT_GONE, SEGMENT_USED, STATE_CROWDED, Store

TAG_BITS: Final = 33
HEAD_BITS: Final = 30
HEAD_MASK: Final = (1 << HEAD_BITS) - 1
HEAD_ZERO: Final = 1 << (HEAD_BITS - 1)
GONE: Final = -1
_SEED: Final = np.uint64(0xA0761D6478BD642F)
_MIX: Final = np.uint64(0xE7037ED1A0B428DB)
_SHIFT: Final = np.uint64(32)
_ONE: Final = np.uint64(1)


def gram_tags(hashes: NDArray[np.uint64], namespace: int) -> NDArray[np.int64]:
    """Tags of grams in one namespace: equal content of two tenants has different tags."""
    tags: NDArray[np.int64] = _tags(hashes, np.uint64((namespace + 1) * int(_SEED) % (1 << 64)))
    return tags


@kernel
def _tags(hashes: NDArray[np.uint64], salt: np.uint64) -> NDArray[np.int64]:
    value = (hashes ^ salt) * _MIX
    value = (value ^ (value >> _SHIFT)) * _MIX
    return ((value >> _SHIFT) << _ONE).astype(np.int64)


@kernel_part
def child_tag(node: int, token: int) -> int:
    mixed = (int(node) * 0x9E3779B1) ^ ((int(token) & 0xFFFFFFFF) * 0x45D9F3B)
    mixed = (mixed ^ (mixed >> 15)) & 0xFFFFFFFF
    mixed = (mixed * 0x2C1B3C6D) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 13)) << 1) | 1


@kernel_part
def pack(tag: int, head: int) -> int:
    return (int(tag) << HEAD_BITS) | (int(head) + HEAD_ZERO)


@kernel_part
def head_of(entry: int) -> int:
    return (int(entry) & HEAD_MASK) - HEAD_ZERO


@kernel_part
def extent_of(store: Store, tag: int) -> tuple[int, int, int]:
    """The segment of ``tag``, and where its places begin and end. Read once: growing replaces it by a single store."""
    count = len(store.segments)
    segment = (int(tag) * count) >> TAG_BITS
    extent = int(store.segments[segment, SEGMENT_EXTENT])
    begin = extent >> 32
    return segment, begin, begin + (extent & 0xFFFFFFFF)


@kernel_part
def home(store: Store, tag: int, begin: int, end: int) -> int:
    """Where ``tag`` would be in an empty segment: places follow the order of tags."""
    count = len(store.segments)
    inside = (int(tag) * count) & ((1 << TAG_BITS) - 1)
    return begin + ((inside * (end - begin)) >> TAG_BITS)


@kernel_part
def add_entry(store: Store, tag: int, head: int) -> None:
    """A new place for ``tag``, even if the tag is there already: every look-up compares the tokens, too."""
    segment, begin, end = extent_of(store, tag)
    place = home(store, tag, begin, end)
    while store.table[place] != 0:
        place += 1
        if place == end:
            place = begin
    store.table[place] = pack(tag, head)
    store.segments[segment, SEGMENT_USED] += 1
    if store.segments[segment, SEGMENT_USED] * 5 > (end - begin) * 4:
        store.state[STATE_CROWDED] = segment + 1


@kernel_part
def set_head(store: Store, place: int, head: int) -> None:
    """Give a key in the table another head, keeping count of the keys that have none."""
    entry = int(store.table[place])
    tag = entry >> HEAD_BITS
    segment, _, _ = extent_of(store, tag)
    store.segments[segment, SEGMENT_GONE] += (head == GONE) - (head_of(entry) == GONE)
    store.table[place] = pack(tag, head)


@kernel
def move_segment(store: Store, segment: int, begin: int, end: int) -> None:
    """Move the live keys of a segment to ``[begin, end)``. Readers finish in the old places."""
    extent = int(store.segments[segment, SEGMENT_EXTENT])
    old = extent >> 32
    count = 0
    for i in range(old, old + (extent & 0xFFFFFFFF)):
        entry = int(store.table[i])
        if entry != 0 and head_of(entry) != GONE:
            place = home(store, entry >> HEAD_BITS, begin, end)
            while store.table[place] != 0:
                place += 1
                if place == end:
                    place = begin
            store.table[place] = entry
            count += 1
    store.segments[segment, SEGMENT_USED] = count
    store.segments[segment, SEGMENT_GONE] = 0
    store.segments[segment, SEGMENT_EXTENT] = (begin << 32) | (end - begin)
