"""Rows for postings: one anchor of one donor, taken from a free list and given back to it."""

from __future__ import annotations

from sembase.compiled import kernel, kernel_part
from semblend.search.layout import (
    DONOR_POSTS,
    POST_DONOR,
    POST_NEXT,
    POST_POSITION,
    POST_PREV,
    POST_SIBLING,
    STATE_POST_FREE,
    STATE_POST_HIGH,
    STATE_POST_USED,
    Store,
)


@kernel_part
def position_of(raw: int) -> int:
    """Postings of the BEFORE trie store the complement of their position, so that removal knows where they live."""
    return raw if raw >= 0 else ~raw


@kernel_part
def new_posting(store: Store, slot: int, raw_position: int) -> int:
    state = store.state
    posting = int(state[STATE_POST_FREE])
    if posting != 0:
        state[STATE_POST_FREE] = store.posts[posting, POST_SIBLING]
    else:
        state[STATE_POST_HIGH] += 1
        posting = int(state[STATE_POST_HIGH])
    state[STATE_POST_USED] += 1
    row = store.posts[posting]
    row[POST_DONOR] = slot
    row[POST_POSITION] = raw_position
    row[POST_NEXT] = 0
    row[POST_PREV] = 0
    row[POST_SIBLING] = store.donors[slot, DONOR_POSTS]
    store.donors[slot, DONOR_POSTS] = posting
    return posting


@kernel
def release_postings(store: Store, posting: int) -> None:
    while posting != 0:
        following = int(store.posts[posting, POST_SIBLING])
        store.posts[posting, POST_SIBLING] = store.state[STATE_POST_FREE]
        store.state[STATE_POST_FREE] = posting
        store.state[STATE_POST_USED] -= 1
        posting = following
