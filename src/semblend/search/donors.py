"""Donor tokens in pages: copy in, compare, release. The only place that touches token memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import HAS_COMPILER, kernel, kernel_part
from semblend.search.layout import (
    DONOR_LENGTH,
    DONOR_PAGES,
    PAGE,
    PAGE_BITS,
    STATE_MAP_FREE,
    STATE_MAP_HIGH,
    STATE_PAGE_FREE,
    STATE_PAGE_HIGH,
    STATE_PAGE_USED,
    Store,
)


@kernel_part
def size_class(pages: int) -> int:
    bits = 0
    while (1 << bits) < pages:
        bits += 1
    return bits


@kernel_part
def write_tokens(store: Store, slot: int, tokens: NDArray[np.uint32]) -> None:
    """Allocate pages for the donor in ``slot`` and copy its tokens. The caller ensures that there is room."""
    state = store.state
    count = (len(tokens) + PAGE - 1) >> PAGE_BITS
    bits = size_class(count)
    first = int(state[STATE_MAP_FREE + bits])
    if first != 0:
        state[STATE_MAP_FREE + bits] = store.page_map[first]
    else:
        first = int(state[STATE_MAP_HIGH]) + 1
        state[STATE_MAP_HIGH] += 1 << bits
    for i in range(count):
        if state[STATE_PAGE_FREE] > 0:
            state[STATE_PAGE_FREE] -= 1
            page = int(store.free_pages[state[STATE_PAGE_FREE]])
        else:
            page = int(state[STATE_PAGE_HIGH])
            state[STATE_PAGE_HIGH] += 1
        store.page_map[first + i] = page
        begin = i << PAGE_BITS
        end = min(begin + PAGE, len(tokens))
        base = page << PAGE_BITS
        store.arena[base : base + end - begin] = tokens[begin:end]
    state[STATE_PAGE_USED] += count
    store.donors[slot, DONOR_PAGES] = first
    store.donors[slot, DONOR_LENGTH] = len(tokens)


@kernel
def read_tokens(store: Store, slot: int) -> NDArray[np.uint32]:
    length = int(store.donors[slot, DONOR_LENGTH])
    tokens = np.empty(length, np.uint32)
    first = int(store.donors[slot, DONOR_PAGES])
    for begin in range(0, length, PAGE):
        end = min(begin + PAGE, length)
        base = int(store.page_map[first + (begin >> PAGE_BITS)]) << PAGE_BITS
        tokens[begin:end] = store.arena[base : base + end - begin]
    return tokens


@kernel
def release_tokens(store: Store, slot: int) -> None:
    state = store.state
    count = (int(store.donors[slot, DONOR_LENGTH]) + PAGE - 1) >> PAGE_BITS
    first = int(store.donors[slot, DONOR_PAGES])
    for i in range(count):
        store.free_pages[state[STATE_PAGE_FREE]] = store.page_map[first + i]
        state[STATE_PAGE_FREE] += 1
    bits = size_class(count)
    store.page_map[first] = state[STATE_MAP_FREE + bits]
    state[STATE_MAP_FREE + bits] = first
    state[STATE_PAGE_USED] -= count


@kernel_part
def token_at(store: Store, slot: int, position: int) -> int:
    page = int(store.page_map[int(store.donors[slot, DONOR_PAGES]) + (position >> PAGE_BITS)])
    return int(store.arena[(page << PAGE_BITS) + (position & (PAGE - 1))])


@kernel_part
def _equal_ahead_loop(a: NDArray[np.uint32], i: int, b: NDArray[np.uint32], j: int, span: int) -> int:
    n = 0
    while n < span and a[i + n] == b[j + n]:
        n += 1
    return n


@kernel_part
def _equal_behind_loop(a: NDArray[np.uint32], i: int, b: NDArray[np.uint32], j: int, span: int) -> int:
    n = 0
    while n < span and a[i - 1 - n] == b[j - 1 - n]:
        n += 1
    return n


def _equal_ahead_vectorised(a: NDArray[np.uint32], i: int, b: NDArray[np.uint32], j: int, span: int) -> int:
    different = a[i : i + span] != b[j : j + span]
    first = int(different.argmax()) if span else 0
    return first if span and different[first] else span


def _equal_behind_vectorised(a: NDArray[np.uint32], i: int, b: NDArray[np.uint32], j: int, span: int) -> int:
    return _equal_ahead_vectorised(a[i - span : i][::-1], 0, b[j - span : j][::-1], 0, span)


_equal_ahead = _equal_ahead_loop if HAS_COMPILER else _equal_ahead_vectorised
_equal_behind = _equal_behind_loop if HAS_COMPILER else _equal_behind_vectorised


@kernel_part
def equal_ahead(store: Store, slot: int, position: int, tokens: NDArray[np.uint32], at: int) -> int:
    """How many donor tokens from ``position`` on equal the recipient's from ``at`` on, compared as ids."""
    length = int(store.donors[slot, DONOR_LENGTH])
    first = int(store.donors[slot, DONOR_PAGES])
    count = 0
    while position < length and at < len(tokens):
        inside = position & (PAGE - 1)
        base = (int(store.page_map[first + (position >> PAGE_BITS)]) << PAGE_BITS) + inside
        span = min(PAGE - inside, length - position, len(tokens) - at)
        same = _equal_ahead(store.arena, base, tokens, at, span)
        count += same
        if same < span:
            break
        position += span
        at += span
    return count


@kernel_part
def equal_behind(store: Store, slot: int, position: int, tokens: NDArray[np.uint32], at: int) -> int:
    """How many donor tokens before ``position`` equal the recipient's before ``at``."""
    first = int(store.donors[slot, DONOR_PAGES])
    count = 0
    while position > 0 and at > 0:
        inside = ((position - 1) & (PAGE - 1)) + 1
        base = (int(store.page_map[first + ((position - 1) >> PAGE_BITS)]) << PAGE_BITS) + inside
        span = min(inside, position, at)
        same = _equal_behind(store.arena, base, tokens, at, span)
        count += same
        if same < span:
            break
        position -= span
        at -= span
    return count


@kernel
def shared_prefixes(store: Store, slots: NDArray[np.int64], tokens: NDArray[np.uint32]) -> NDArray[np.int64]:
    """How many of each donor's first tokens equal the recipient's."""
    shared = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        shared[i] = equal_ahead(store, int(slots[i]), 0, tokens, 0)
    return shared
