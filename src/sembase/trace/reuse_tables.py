"""The hash tables and digest comparisons of ``reuse_counter``: open addressing over arrays, compiled if possible.

A place is ``slot << 32 | position``: the slot of the last request that had the anchor, and the digest where it ends.
Digests are packed, 32 per word, the first in the low bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from sembase.trace.content_digests import GRAM

FREE: Final = -1
PER_WORD: Final = 32
DONOR, DONOR_START, START, LENGTH = range(4)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_ZERO, _ONE, _TWO, _THREE, _30, _27, _31, _64 = map(np.uint64, (0, 1, 2, 3, 30, 27, 31, 64))
_LOW_BITS: Final = 32
_POSITION: Final = (1 << _LOW_BITS) - 1


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit values whose bits all depend on all bits."""
    values = (values ^ (values >> _30)) * _MIX_1
    values = (values ^ (values >> _27)) * _MIX_2
    return values ^ (values >> _31)


@kernel_part
def _mix_one(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> _30)) * _MIX_1
    value = (value ^ (value >> _27)) * _MIX_2
    return value ^ (value >> _31)


@kernel_part
def _find(keys: NDArray[np.uint64], values: NDArray[np.int64], key: np.uint64) -> np.int64:
    """Where ``key`` is, or the free entry where it belongs. The table is never full."""
    mask = len(keys) - 1
    at = np.int64(key & np.uint64(mask))
    while values[at] != FREE and keys[at] != key:
        at = (at + 1) & mask
    return at


@kernel
def match_prefix(
    steps: NDArray[np.uint32],
    seed: np.uint64,
    number: int,
    keys: NDArray[np.uint64],
    owners: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Steps an earlier request had after the same beginning, its number, and the entries added for this request."""
    chain = seed
    matched, donor, added, is_hit = 0, FREE, 0, True
    for i in range(len(steps)):
        chain = _mix_one(chain ^ np.uint64(steps[i]))
        at = _find(keys, owners, chain)
        is_hit = is_hit and owners[at] != FREE
        if is_hit:
            matched = i + 1
            donor = owners[at]
        if owners[at] == FREE:
            keys[at] = chain
            added += 1
        owners[at] = number
    return matched, donor, added


@kernel_part
def _word_at(words: NDArray[np.uint64], digest: int) -> np.uint64:
    """The 32 digests from ``digest`` on."""
    word, shift = digest >> 5, np.uint64((digest & 31) << 1)
    value: np.uint64 = words[word] >> shift
    if shift != _ZERO and word + 1 < len(words):
        value |= words[word + 1] << (_64 - shift)
    return value


@kernel_part
def _equal_ahead(store: NDArray[np.uint64], there: int, words: NDArray[np.uint64], here: int, most: int) -> int:
    """Equal digests from ``there`` and ``here`` on, at most ``most``."""
    equal = 0
    while equal < most:
        differing = _word_at(store, there + equal) ^ _word_at(words, here + equal)
        if differing != _ZERO:
            while differing & _THREE == _ZERO:
                differing >>= _TWO
                equal += 1
            break
        equal += PER_WORD
    return min(equal, most)


@kernel_part
def _equal_behind(store: NDArray[np.uint64], there: int, words: NDArray[np.uint64], here: int, most: int) -> int:
    """Equal digests before ``there`` and ``here``, at most ``most``."""
    equal = 0
    while equal + PER_WORD <= most:
        if _word_at(store, there - equal - PER_WORD) != _word_at(words, here - equal - PER_WORD):
            break
        equal += PER_WORD
    while equal < most:
        if (_word_at(store, there - equal - 1) ^ _word_at(words, here - equal - 1)) & _THREE != _ZERO:
            break
        equal += 1
    return equal


@kernel
def anchor_hashes(
    words: NDArray[np.uint64], first: int, stop: int, bits: np.uint64, seed: np.uint64
) -> NDArray[np.uint64]:
    """What identifies the digests under ``bits`` from each position on, in the namespace of ``seed``."""
    hashes = np.empty(stop - first, np.uint64)
    for digest in range(first, stop):
        hashes[digest - first] = _mix_one((_word_at(words, digest) & bits) ^ seed)
    return hashes


@kernel
def find_runs(
    words: NDArray[np.uint64],
    tokens: int,
    prefix: int,
    ends: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    places: NDArray[np.int64],
    store: NDArray[np.uint64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    reach: int,
    least: int,
    runs: NDArray[np.int64],
) -> int:
    """Extend every known anchor both ways by comparing digests; returns the number of runs of ``least`` tokens or more.

    ``reach`` is how far a window that selects an anchor extends beyond it. An anchor whose windows all lie inside a run
    found before is skipped: a run that reaches past either end is found at another anchor. In periodic text one anchor
    in ``GRAM`` is extended, once a run was found.
    """
    count = 0
    covered_from, covered_to = 0, prefix
    tried = -1
    for i in range(len(ends)):
        end = ends[i]
        if covered_from + reach <= end and end + reach < covered_to:
            continue
        is_repeated = i > 0 and hashes[i] == hashes[i - 1] and i + 1 < len(ends) and hashes[i] == hashes[i + 1]
        if is_repeated and end - tried < GRAM:
            continue
        place = places[_find(keys, places, hashes[i])]
        if place == FREE:
            continue
        slot, position = place >> _LOW_BITS, place & _POSITION
        base = starts[slot] * PER_WORD
        shift = position - end
        ahead = _equal_ahead(store, base + position, words, end, min(tokens - end, lengths[slot] - position))
        if ahead == 0:
            continue
        # Digests of the first tokens cover shorter grams and compare only at the same position.
        whole = 0 if shift == 0 else GRAM - 1
        behind = _equal_behind(store, base + position, words, end, min(end, position) - whole)
        start = end - behind
        start = 0 if start == 0 else max(start - (GRAM - 1), 0)
        if end + ahead - start >= least:
            tried = end
            runs[count, DONOR] = slot
            runs[count, DONOR_START] = start + shift
            runs[count, START] = start
            runs[count, LENGTH] = end + ahead - start
            count += 1
            if end + ahead > covered_to:
                covered_from, covered_to = start, end + ahead
    return count


@kernel
def compose_runs(found: NDArray[np.int64], prefix: int, composed: NDArray[np.int64]) -> int:
    """Disjoint runs beyond the prefix with the same union: at each position the one that reaches furthest.

    ``found`` is ordered by start.
    """
    count, i, at = 0, 0, prefix
    while i < len(found):
        best = -1
        while i < len(found) and found[i, START] <= at:
            end = found[i, START] + found[i, LENGTH]
            if end > at and (best < 0 or end > found[best, START] + found[best, LENGTH]):
                best = i
            i += 1
        if best < 0:
            if i < len(found):
                at = found[i, START]
            continue
        cut = at - found[best, START]
        composed[count, DONOR] = found[best, DONOR]
        composed[count, DONOR_START] = found[best, DONOR_START] + cut
        composed[count, START] = at
        composed[count, LENGTH] = found[best, LENGTH] - cut
        at += composed[count, LENGTH]
        count += 1
    return count


@kernel
def insert_anchors(
    ends: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    slot: int,
    keys: NDArray[np.uint64],
    places: NDArray[np.int64],
    anchors: NDArray[np.int64],
) -> int:
    """The new slot takes over the anchors that others had; ``anchors`` counts them by slot. Returns those added."""
    added = 0
    for i in range(len(ends)):
        at = _find(keys, places, hashes[i])
        if places[at] == FREE:
            keys[at] = hashes[i]
            added += 1
        else:
            anchors[places[at] >> _LOW_BITS] -= 1
        places[at] = (slot << _LOW_BITS) | ends[i]
        anchors[slot] += 1
    return added


@kernel
def copy_entries(
    keys: NDArray[np.uint64],
    values: NDArray[np.int64],
    keep: NDArray[np.bool_],
    new_keys: NDArray[np.uint64],
    new_values: NDArray[np.int64],
) -> int:
    kept = 0
    for i in range(len(keys)):
        if keep[i]:
            at = _find(new_keys, new_values, keys[i])
            new_keys[at] = keys[i]
            new_values[at] = values[i]
            kept += 1
    return kept


@kernel
def are_known(hashes: NDArray[np.uint64], keys: NDArray[np.uint64], values: NDArray[np.int64]) -> NDArray[np.bool_]:
    known = np.empty(len(hashes), np.bool_)
    for i in range(len(hashes)):
        known[i] = values[_find(keys, values, hashes[i])] != FREE
    return known


@kernel
def add_keys(hashes: NDArray[np.uint64], keys: NDArray[np.uint64], values: NDArray[np.int64]) -> int:
    added = 0
    for i in range(len(hashes)):
        at = _find(keys, values, hashes[i])
        if values[at] == FREE:
            keys[at] = hashes[i]
            values[at] = 0
            added += 1
    return added
