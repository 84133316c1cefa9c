"""What one replica holds: compiled map from the engine's block hash to our block key, oldest first, bounded.

``BlockRemoved`` and ``parent_block_hash`` speak of engine hashes only; this is where they become keys. An engine may
keep several copies of one block and reports each of them coming and going, hence the count. 26 bytes a block in
columns that double up to the bound, and 4 bytes a place in an index at a load between 3/8 and 3/4.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semblend.compiled import kernel, kernel_part
from semgate.index.holders import Holders, hold, release

SMALLEST_BLOCKS: Final = 256
COUNT, USED, FREE, OLDEST, NEWEST = range(5)  # positions in `Held.state`
STORED, LET_GO, TWINS = range(3)  # positions in the `counts` that the kernels fill
NONE: Final = -1
MOST_COPIES: Final = 65535
_FOLD: Final = np.uint64(32)
_FOLD_AGAIN: Final = np.uint64(15)


class Held(NamedTuple):
    """Columns by entry; ``older`` and ``newer`` link the entries by age, ``newer`` also the free ones.

    ``places`` holds entry + 1 at the place of its hash, 0 where free. ``stamps`` is empty when nobody asks for ages.
    """

    hashes: NDArray[np.uint64]
    keys: NDArray[np.uint64]
    copies: NDArray[np.uint16]
    older: NDArray[np.int32]
    newer: NDArray[np.int32]
    stamps: NDArray[np.int32]
    places: NDArray[np.int32]
    state: NDArray[np.int64]


def new_held(blocks: int = SMALLEST_BLOCKS, *, stamped: bool = False) -> Held:
    return Held(
        hashes=np.empty(blocks, np.uint64),
        keys=np.empty(blocks, np.uint64),
        copies=np.empty(blocks, np.uint16),
        older=np.empty(blocks, np.int32),
        newer=np.empty(blocks, np.int32),
        stamps=np.empty(blocks if stamped else 0, np.int32),
        places=np.zeros(1 << (blocks * 4 // 3).bit_length(), np.int32),
        state=np.array([0, 0, NONE, NONE, NONE], np.int64),
    )


def grown(held: Held, blocks: int) -> Held:
    """The same content with room for ``blocks`` entries."""
    fresh = new_held(blocks, stamped=len(held.stamps) > 0)
    for name in ("hashes", "keys", "copies", "older", "newer", "stamps"):
        column = getattr(held, name)
        getattr(fresh, name)[: len(column)] = column
    fresh.state[:] = held.state
    index_again(fresh)
    return fresh


def held_bytes(held: Held) -> int:
    return sum(column.nbytes for column in held)


@kernel_part
def _home(hash_: np.uint64, places: int) -> int:
    """Engine hashes are hashes already; folding covers those whose low bits say little."""
    folded = hash_ ^ (hash_ >> _FOLD)
    return int(np.int64((folded ^ (folded >> _FOLD_AGAIN)) & np.uint64(places - 1)))


@kernel_part
def find_place(held: Held, hash_: np.uint64) -> int:
    """The place of a hash, or ``-1 - place`` of the free place where it would go."""
    mask = len(held.places) - 1
    place = _home(hash_, len(held.places))
    while held.places[place] != 0:
        if held.hashes[held.places[place] - 1] == hash_:
            return place
        place = (place + 1) & mask
    return -1 - place


@kernel_part
def _unlink(held: Held, entry: int) -> None:
    older, newer = held.older[entry], held.newer[entry]
    if older >= 0:
        held.newer[older] = newer
    else:
        held.state[OLDEST] = newer
    if newer >= 0:
        held.older[newer] = older
    else:
        held.state[NEWEST] = older


@kernel_part
def _link_newest(held: Held, entry: int) -> None:
    newest = held.state[NEWEST]
    held.older[entry] = newest
    held.newer[entry] = NONE
    if newest >= 0:
        held.newer[newest] = entry
    else:
        held.state[OLDEST] = entry
    held.state[NEWEST] = entry


@kernel_part
def _new_entry(held: Held) -> int:
    entry = held.state[FREE]
    if entry >= 0:
        held.state[FREE] = held.newer[entry]
    else:
        entry = held.state[USED]
        held.state[USED] += 1
    held.state[COUNT] += 1
    return int(entry)


@kernel_part
def drop_place(held: Held, gap: int) -> np.uint64:
    """Forget the hash at a place; its key. What was pushed behind the place moves back."""
    entry = held.places[gap] - 1
    _unlink(held, entry)
    held.copies[entry] = 0
    held.newer[entry] = held.state[FREE]
    held.state[FREE] = entry
    held.state[COUNT] -= 1
    mask = len(held.places) - 1
    place = (gap + 1) & mask
    while held.places[place] != 0:
        home = _home(held.hashes[held.places[place] - 1], len(held.places))
        if ((place - home) & mask) >= ((place - gap) & mask):
            held.places[gap] = held.places[place]
            gap = place
        place = (place + 1) & mask
    held.places[gap] = 0
    return np.uint64(held.keys[entry])


@kernel_part
def _drop_oldest(held: Held) -> np.uint64:
    return drop_place(held, find_place(held, held.hashes[held.state[OLDEST]]))


@kernel
def keep(
    holders: Holders,
    held: Held,
    slot: int,
    hashes: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    bound: int,
    stamp: int,
    let_go: NDArray[np.uint64],
    twins: NDArray[np.uint64],
    counts: NDArray[np.int64],
) -> None:
    """Store blocks as the newest, dropping the oldest beyond the bound.

    ``let_go`` gets the keys dropped for room, ``twins`` the keys that this slot held already under another hash.
    The caller has made room in both tables for ``min(len(hashes), bound)`` more.
    """
    counts[:] = 0
    for i in range(len(hashes)):
        place = find_place(held, hashes[i])
        if place >= 0:
            entry = held.places[place] - 1
            held.copies[entry] = min(held.copies[entry] + 1, MOST_COPIES)
            _unlink(held, entry)
        else:
            if held.state[COUNT] >= bound:
                key = _drop_oldest(held)
                release(holders, key, slot)
                let_go[counts[LET_GO]] = key
                counts[LET_GO] += 1
                place = find_place(held, hashes[i])
            entry = _new_entry(held)
            held.places[-1 - place] = entry + 1
            held.hashes[entry] = hashes[i]
            held.keys[entry] = keys[i]
            held.copies[entry] = 1
            counts[STORED] += 1
            if not hold(holders, keys[i], slot):
                twins[counts[TWINS]] = keys[i]
                counts[TWINS] += 1
        if len(held.stamps) > 0:
            held.stamps[entry] = stamp
        _link_newest(held, entry)


@kernel
def forget(
    holders: Holders,
    held: Held,
    slot: int,
    hashes: NDArray[np.uint64],
    count_copies: bool,
    let_go: NDArray[np.uint64],
    counts: NDArray[np.int64],
) -> None:
    """Remove one copy of each block; unknown hashes are passed over. ``let_go`` gets the keys that left."""
    counts[:] = 0
    for i in range(len(hashes)):
        place = find_place(held, hashes[i])
        if place < 0:
            continue
        entry = held.places[place] - 1
        if count_copies and held.copies[entry] > 1:
            held.copies[entry] -= 1
            continue
        key = drop_place(held, place)
        release(holders, key, slot)
        let_go[counts[LET_GO]] = key
        counts[LET_GO] += 1


@kernel
def forget_older(holders: Holders, held: Held, slot: int, stamp: int) -> int:
    """Drop the entries last stored before ``stamp``, oldest first; how many. Needs stamps, and no twins."""
    dropped = 0
    while held.state[COUNT] > 0 and held.stamps[held.state[OLDEST]] < stamp:
        release(holders, _drop_oldest(held), slot)
        dropped += 1
    return dropped


@kernel
def release_all(holders: Holders, held: Held, slot: int) -> None:
    """Clear the slot's bit on all it holds; the caller throws ``held`` away."""
    entry = held.state[OLDEST]
    while entry >= 0:
        release(holders, held.keys[entry], slot)
        entry = held.newer[entry]


@kernel
def hold_again(holders: Holders, key: np.uint64, slot: int) -> None:
    hold(holders, key, slot)


@kernel
def key_of(held: Held, hash_: np.uint64) -> np.uint64:
    """The key of an engine hash; 0 when the slot does not hold it."""
    place = find_place(held, hash_)
    return held.keys[held.places[place] - 1] if place >= 0 else np.uint64(0)


@kernel
def index_again(held: Held) -> None:
    """Fill an empty index from the columns."""
    entry = held.state[OLDEST]
    while entry >= 0:
        held.places[-1 - find_place(held, held.hashes[entry])] = entry + 1
        entry = held.newer[entry]


@kernel
def copy_entries(held: Held, hashes: NDArray[np.uint64], keys: NDArray[np.uint64]) -> None:
    """Hashes and keys, oldest first."""
    entry = held.state[OLDEST]
    count = 0
    while entry >= 0:
        hashes[count] = held.hashes[entry]
        keys[count] = held.keys[entry]
        entry = held.newer[entry]
        count += 1
