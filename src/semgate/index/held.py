"""What one replica holds: compiled map from the engine's block hash to our block key, oldest first, bounded.

``BlockRemoved`` and ``parent_block_hash`` name engine hashes only; this map turns them into keys. An engine may keep
several copies of one block and reports each of them stored and removed, hence the count. 26 bytes per block in columns
that are reserved at once and use memory as they fill, and 4 bytes per place in an index at a load between 3/8 and 3/4,
which doubles by moving a few places at a time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from semgate.index.holders import Holders, hold, release
from semgate.index.pages import zeros

MIN_BLOCKS: Final = 256
RESERVED_BLOCKS: Final = 1 << 21  # a replica with a higher bound copies its columns when it holds more
COUNT, USED, FREE, OLDEST, NEWEST, MOVED = range(6)  # positions in `Held.state`
STORED, DROPPED, TWINS = range(3)  # positions in the `counts` that the kernels fill
NONE: Final = -1
MAX_COPIES: Final = 65535
_MOVED_AWAY: Final = -1
_COLUMNS: Final = ("hashes", "keys", "copies", "older", "newer", "stamps")
_FOLD: Final = np.uint64(32)
_FOLD_AGAIN: Final = np.uint64(15)


class Held(NamedTuple):
    """Columns by entry; ``older`` and ``newer`` link the entries by age, ``newer`` also the free ones.

    ``places`` holds entry + 1 at the place of its hash, 0 where free. An index that was outgrown lies in ``old_places``
    until its entries were moved, -1 where one was. ``stamps`` is empty where ages are not used.
    """

    hashes: NDArray[np.uint64]
    keys: NDArray[np.uint64]
    copies: NDArray[np.uint16]
    older: NDArray[np.int32]
    newer: NDArray[np.int32]
    stamps: NDArray[np.int32]
    places: NDArray[np.int32]
    old_places: NDArray[np.int32]
    state: NDArray[np.int64]


def new_held(bound: int = MIN_BLOCKS, *, stamped: bool = False) -> Held:
    return _with_columns(
        max(min(bound, RESERVED_BLOCKS), MIN_BLOCKS),
        stamped,
        places=np.zeros(_places_for(MIN_BLOCKS), np.int32),
        state=np.array([0, 0, NONE, NONE, NONE, 0], np.int64),
    )


def _with_columns(blocks: int, stamped: bool, *, places: NDArray[np.int32], state: NDArray[np.int64]) -> Held:
    return Held(
        hashes=zeros((blocks,), np.uint64),
        keys=zeros((blocks,), np.uint64),
        copies=zeros((blocks,), np.uint16),
        older=zeros((blocks,), np.int32),
        newer=zeros((blocks,), np.int32),
        stamps=zeros((blocks if stamped else 0,), np.int32),
        places=places,
        old_places=np.zeros(1, np.int32),
        state=state,
    )


def _places_for(blocks: int) -> int:
    return 1 << (blocks * 4 // 3).bit_length()


def grown(held: Held, blocks: int, bound: int) -> Held:
    """The same content with space for at least ``blocks`` entries."""
    size = len(held.hashes)
    if blocks > size:
        wider = _with_columns(
            min(max(blocks, 2 * size), bound), len(held.stamps) > 0, places=held.places, state=held.state
        )
        for name in _COLUMNS:
            column = getattr(held, name)
            getattr(wider, name)[: len(column)] = column
        held = wider._replace(old_places=held.old_places)
    if _places_for(blocks) <= len(held.places):
        return held
    if len(held.old_places) > 1:
        move_places(held, len(held.old_places))
    held.state[MOVED] = 0
    return held._replace(places=zeros((_places_for(blocks),), np.int32), old_places=held.places)


def without_old_index(held: Held) -> Held:
    """Without the old index, once all its places were moved."""
    return held._replace(old_places=np.zeros(1, np.int32)) if held.state[MOVED] >= len(held.old_places) else held


def held_bytes(held: Held) -> int:
    """Without reserved space that was never used."""
    entry_bytes: int = sum(getattr(held, name).itemsize for name in _COLUMNS if len(getattr(held, name)))
    return entry_bytes * int(held.state[USED]) + held.places.nbytes + held.old_places.nbytes


@kernel_part
def _home(hash_: np.uint64, places: int) -> int:
    """Engine hashes are hashes already; folding covers those whose low bits vary little."""
    folded = hash_ ^ (hash_ >> _FOLD)
    return int(np.int64((folded ^ (folded >> _FOLD_AGAIN)) & np.uint64(places - 1)))


@kernel_part
def _find_place(places: NDArray[np.int32], hashes: NDArray[np.uint64], hash_: np.uint64) -> int:
    """The place of a hash, or ``-1 - place`` of the free place where it would go."""
    mask = len(places) - 1
    place = _home(hash_, len(places))
    while places[place] != 0:
        if places[place] > 0 and hashes[places[place] - 1] == hash_:
            return place
        place = (place + 1) & mask
    return -1 - place


@kernel_part
def find_entry(held: Held, hash_: np.uint64) -> int:
    """The entry of a hash, or ``NONE``."""
    place = _find_place(held.places, held.hashes, hash_)
    if place >= 0:
        return int(held.places[place] - 1)
    if len(held.old_places) > 1:
        place = _find_place(held.old_places, held.hashes, hash_)
        if place >= 0:
            return int(held.old_places[place] - 1)
    return NONE


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
def drop_entry(held: Held, entry: int) -> np.uint64:
    """Remove an entry and return its key."""
    place = _find_place(held.places, held.hashes, held.hashes[entry])
    if place >= 0:
        _close_place(held, place)
    else:
        held.old_places[_find_place(held.old_places, held.hashes, held.hashes[entry])] = _MOVED_AWAY
    _unlink(held, entry)
    held.copies[entry] = 0
    held.newer[entry] = held.state[FREE]
    held.state[FREE] = entry
    held.state[COUNT] -= 1
    return np.uint64(held.keys[entry])


@kernel_part
def _close_place(held: Held, gap: int) -> None:
    """Free a place and move displaced entries back."""
    mask = len(held.places) - 1
    place = (gap + 1) & mask
    while held.places[place] != 0:
        home = _home(held.hashes[held.places[place] - 1], len(held.places))
        if ((place - home) & mask) >= ((place - gap) & mask):
            held.places[gap] = held.places[place]
            gap = place
        place = (place + 1) & mask
    held.places[gap] = 0


@kernel
def move_places(held: Held, count: int) -> None:
    """Move the next places of the old index."""
    begin = held.state[MOVED]
    end = min(begin + count, len(held.old_places))
    for old_place in range(begin, end):
        entry = held.old_places[old_place] - 1
        if entry >= 0:
            place = -1 - _find_place(held.places, held.hashes, held.hashes[entry])
            held.places[place] = entry + 1
            held.old_places[old_place] = _MOVED_AWAY
    held.state[MOVED] = end


@kernel
def keep(
    holders: Holders,
    held: Held,
    bit: int,
    hashes: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    bound: int,
    stamp: int,
    dropped: NDArray[np.uint64],
    twins: NDArray[np.uint64],
    counts: NDArray[np.int64],
) -> None:
    """Store blocks as the newest, dropping the oldest beyond the bound.

    ``dropped`` receives the keys dropped to make room, ``twins`` the keys this bit already held under another hash.
    The caller has made room in both tables for ``min(len(hashes), bound)`` more.
    """
    counts[:] = 0
    for i in range(len(hashes)):
        entry = find_entry(held, hashes[i])
        if entry >= 0:
            held.copies[entry] = min(held.copies[entry] + 1, MAX_COPIES)
            _unlink(held, entry)
        else:
            if held.state[COUNT] >= bound:
                key = drop_entry(held, held.state[OLDEST])
                release(holders, key, bit)
                dropped[counts[DROPPED]] = key
                counts[DROPPED] += 1
            entry = _new_entry(held)
            held.places[-1 - _find_place(held.places, held.hashes, hashes[i])] = entry + 1
            held.hashes[entry] = hashes[i]
            held.keys[entry] = keys[i]
            held.copies[entry] = 1
            counts[STORED] += 1
            if not hold(holders, keys[i], bit):
                twins[counts[TWINS]] = keys[i]
                counts[TWINS] += 1
        if len(held.stamps) > 0:
            held.stamps[entry] = stamp
        _link_newest(held, entry)


@kernel
def forget(
    holders: Holders,
    held: Held,
    bit: int,
    hashes: NDArray[np.uint64],
    count_copies: bool,
    dropped: NDArray[np.uint64],
    counts: NDArray[np.int64],
) -> None:
    """Remove one copy of each block; unknown hashes are ignored. ``dropped`` receives the removed keys."""
    counts[:] = 0
    for i in range(len(hashes)):
        entry = find_entry(held, hashes[i])
        if entry < 0:
            continue
        if count_copies and held.copies[entry] > 1:
            held.copies[entry] -= 1
            continue
        key = drop_entry(held, entry)
        release(holders, key, bit)
        dropped[counts[DROPPED]] = key
        counts[DROPPED] += 1


@kernel
def forget_older(holders: Holders, held: Held, bit: int, stamp: int, limit: int) -> int:
    """Drop up to ``limit`` entries stored before ``stamp``, oldest first; returns the count. Needs stamps, no twins."""
    count = 0
    while count < limit and held.state[COUNT] > 0 and held.stamps[held.state[OLDEST]] < stamp:
        release(holders, drop_entry(held, held.state[OLDEST]), bit)
        count += 1
    return count


@kernel
def release_some(holders: Holders, held: Held, bit: int, limit: int) -> int:
    """Clear the bit of up to ``limit`` of the oldest blocks and return the count. Used to discard ``held`` in steps."""
    entry = held.state[OLDEST]
    released = 0
    while entry >= 0 and released < limit:
        release(holders, held.keys[entry], bit)
        entry = held.newer[entry]
        released += 1
    held.state[OLDEST] = entry
    held.state[COUNT] -= released
    return released


@kernel
def hold_again(holders: Holders, key: np.uint64, bit: int) -> None:
    hold(holders, key, bit)


@kernel
def key_of(held: Held, hash_: np.uint64) -> np.uint64:
    """The key of an engine hash; 0 if the replica does not hold it."""
    entry = find_entry(held, hash_)
    return held.keys[entry] if entry >= 0 else np.uint64(0)


@kernel
def entries_of(held: Held, key: np.uint64) -> int:
    """Under how many engine hashes a key is held; scans every entry."""
    count = 0
    for entry in range(held.state[USED]):
        if held.keys[entry] == key and held.copies[entry] > 0:
            count += 1
    return count


def frozen(held: Held) -> Held:
    """A copy of the entries, without the index; for ``entries``."""
    used = int(held.state[USED])
    columns = {name: getattr(held, name)[: used if len(getattr(held, name)) else 0].copy() for name in _COLUMNS}
    none = np.zeros(1, np.int32)
    return Held(**columns, places=none, old_places=none, state=held.state.copy())


def entries(held: Held) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint16]]:
    """Engine hashes, block keys and copies, oldest first."""
    count = int(held.state[COUNT])
    hashes, keys, copies = np.empty(count, np.uint64), np.empty(count, np.uint64), np.empty(count, np.uint16)
    copy_entries(held, hashes, keys, copies)
    return hashes, keys, copies


@kernel
def set_copies(held: Held, hashes: NDArray[np.uint64], copies: NDArray[np.uint16]) -> None:
    for i in range(len(hashes)):
        entry = find_entry(held, hashes[i])
        if entry >= 0:
            held.copies[entry] = copies[i]


@kernel
def copy_entries(held: Held, hashes: NDArray[np.uint64], keys: NDArray[np.uint64], copies: NDArray[np.uint16]) -> None:
    """Hashes, keys and copies, oldest first."""
    entry = held.state[OLDEST]
    count = 0
    while entry >= 0:
        hashes[count] = held.hashes[entry]
        keys[count] = held.keys[entry]
        copies[count] = held.copies[entry]
        entry = held.newer[entry]
        count += 1
