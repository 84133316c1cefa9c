"""Anchor -> the donors that hold it: an open-addressing table over linked postings, in arrays of fixed size.

Compiled loops of ``index.py``, called on one thread. A posting takes 28 bytes and its part of the table 24, that is
about 3 bytes per donor token; pages that were never written cost nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part

# Columns of ``posts``; row 0 means none.
DONOR: Final = 0
POSITION: Final = 1
NEXT: Final = 2  # of the same anchor, newest first
BEFORE: Final = 3
SIBLING: Final = 4  # of the same donor; also links free rows
# Columns of ``donors``; row 0 holds the ends of the ring by age.
SLOT: Final = 0
FIRST: Final = 1
OLDER: Final = 2
NEWER: Final = 3
# Places of ``state``.
FREE: Final = 0
HIGH: Final = 1
LIVING: Final = 2


class Store(NamedTuple):
    """``keys``, ``heads`` and ``used`` are the table; a place is used while its anchor has postings."""

    keys: NDArray[np.uint64]
    heads: NDArray[np.int32]
    used: NDArray[np.bool_]
    posts: NDArray[np.int32]
    post_keys: NDArray[np.uint64]
    donors: NDArray[np.int32]
    state: NDArray[np.int64]


def new_store(max_anchors: int, max_donors: int) -> Store:
    places = 1 << (2 * max_anchors - 1).bit_length()
    return Store(
        np.zeros(places, np.uint64),
        np.zeros(places, np.int32),
        np.zeros(places, np.bool_),
        np.zeros((max_anchors + 1, 5), np.int32),
        np.zeros(max_anchors + 1, np.uint64),
        np.zeros((max_donors + 1, 4), np.int32),
        np.zeros(3, np.int64),
    )


@kernel_part
def place_of(store: Store, key: np.uint64) -> np.int64:
    """The place of ``key``, or the empty place where it belongs."""
    mask = len(store.keys) - 1
    place = np.int64(key & np.uint64(mask))  # keys are already well mixed
    while store.used[place] and store.keys[place] != key:
        place = (place + 1) & mask
    return place


@kernel
def link(store: Store, donor: int, keys: NDArray[np.uint64], positions: NDArray[np.int32], crowd: int) -> None:
    """Add the postings of a new donor. An anchor that already has ``crowd`` of them drops its oldest."""
    state, posts = store.state, store.posts
    for i in range(len(keys)):
        place = place_of(store, keys[i])
        if not store.used[place]:
            store.used[place] = True
            store.keys[place] = keys[i]
            store.heads[place] = 0
        if state[FREE] != 0:
            post = int(state[FREE])
            state[FREE] = posts[post, SIBLING]
        else:
            state[HIGH] += 1
            post = int(state[HIGH])
        state[LIVING] += 1
        head = int(store.heads[place])
        posts[post, DONOR] = donor
        posts[post, POSITION] = positions[i]
        posts[post, NEXT] = head
        posts[post, BEFORE] = 0
        posts[post, SIBLING] = store.donors[donor, FIRST]
        store.donors[donor, FIRST] = post
        store.post_keys[post] = keys[i]
        if head != 0:
            posts[head, BEFORE] = post
        store.heads[place] = post
        _thin(store, post, crowd)


@kernel_part
def _thin(store: Store, head: int, crowd: int) -> None:
    """Unchain the posting after the first ``crowd``; its donor still owns the row."""
    posts = store.posts
    post = head
    for _ in range(crowd):
        post = int(posts[post, NEXT])
        if post == 0:
            return
    posts[posts[post, BEFORE], NEXT] = 0
    posts[post, BEFORE] = -1  # in no chain


@kernel_part
def _close(store: Store, gap: int) -> None:
    """Free a place and move back the entries it displaced, so that the table needs no sweep later."""
    mask = len(store.keys) - 1
    place = (gap + 1) & mask
    while store.used[place]:
        home = np.int64(store.keys[place] & np.uint64(mask))
        if ((place - home) & mask) >= ((place - gap) & mask):
            store.keys[gap] = store.keys[place]
            store.heads[gap] = store.heads[place]
            gap = place
        place = (place + 1) & mask
    store.used[gap] = False


@kernel
def unlink(store: Store, donor: int) -> None:
    """Return all postings of a donor to the free rows."""
    posts, state = store.posts, store.state
    post = int(store.donors[donor, FIRST])
    while post != 0:
        sibling = int(posts[post, SIBLING])
        before, following = int(posts[post, BEFORE]), int(posts[post, NEXT])
        if before > 0:
            posts[before, NEXT] = following
        elif before == 0:
            place = int(place_of(store, store.post_keys[post]))
            store.heads[place] = following
            if following == 0:
                _close(store, place)
        if before >= 0 and following != 0:
            posts[following, BEFORE] = before
        posts[post, DONOR] = 0
        posts[post, SIBLING] = state[FREE]
        state[FREE] = post
        state[LIVING] -= 1
        post = sibling
    store.donors[donor, FIRST] = 0
