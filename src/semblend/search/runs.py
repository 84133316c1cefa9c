"""Seed and extend: probe the recipient's anchors, compare tokens as ids, return maximal equal runs."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from semblend.search.context_trie import AFTER, CHAIN, DEPTH, is_head_gram, leaf_towards
from semblend.search.donors import equal_ahead, equal_behind, write_tokens
from semblend.search.grams import find_gram, insert_posting, remove_posting
from semblend.search.heads import head_hashes
from semblend.search.layout import (
    DONOR_HEADS,
    DONOR_LIVE,
    DONOR_NAMESPACE,
    DONOR_POSTS,
    NODE_BYTES,
    NODE_LINK,
    POST_BYTES,
    POST_DONOR,
    POST_NEXT,
    POST_POSITION,
    POST_SIBLING,
    STATE_CROWDED,
    STATE_NODE_USED,
    STATE_POST_USED,
    Store,
)
from semblend.search.postings import position_of
from semblend.search.table import GONE, head_of

RUN_SLOT, RUN_DONOR_START, RUN_TARGET_START, RUN_LENGTH = range(4)
SPARE: Final = 64  # postings and nodes kept free, more than one anchor can use
SPARE_BYTES: Final = SPARE * (POST_BYTES + NODE_BYTES)
RECENT: Final = 64  # found runs a new candidate is compared with before its tokens are


@kernel
def link_donor(
    store: Store,
    slot: int,
    tokens: NDArray[np.uint32],
    positions: NDArray[np.int32],
    tags: NDArray[np.int64],
    begin: int,
    gram: int,
    ceiling: int,
) -> int:
    """Link anchors from ``begin`` on; stops early, returning where, when room must be made first.

    ``ceiling`` bounds the bytes of all postings and nodes. One anchor adds at most some twenty of each.
    """
    state = store.state
    for i in range(begin, len(positions)):
        held = state[STATE_POST_USED] * POST_BYTES + state[STATE_NODE_USED] * NODE_BYTES
        if state[STATE_CROWDED] != 0 or held + SPARE_BYTES > ceiling:
            return i
        if state[STATE_POST_USED] + SPARE >= len(store.posts) or state[STATE_NODE_USED] + SPARE >= len(store.nodes):
            return i
        insert_posting(store, int(tags[i]), slot, tokens, int(positions[i]), gram)
    return len(positions)


@kernel
def store_donor(
    store: Store, slot: int, namespace: int, tokens: NDArray[np.uint32], weights: NDArray[np.int64]
) -> None:
    write_tokens(store, slot, tokens)
    store.donors[slot, DONOR_HEADS:] = head_hashes(tokens, weights)
    store.donors[slot, DONOR_NAMESPACE] = namespace
    store.donors[slot, DONOR_POSTS] = 0


@kernel
def unlink_donor(
    store: Store,
    slot: int,
    tokens: NDArray[np.uint32],
    positions: NDArray[np.int32],
    tags: NDArray[np.int64],
    gram: int,
) -> None:
    posting = int(store.donors[slot, DONOR_POSTS])
    while posting != 0:
        position = position_of(int(store.posts[posting, POST_POSITION]))
        tag = int(tags[np.searchsorted(positions, position)])
        remove_posting(store, posting, tag, tokens, gram)
        posting = int(store.posts[posting, POST_SIBLING])


@kernel_part
def is_known(runs: NDArray[np.int64], count: int, slot: int, shift: int, at: int) -> bool:
    """Whether one of the last ``RECENT`` runs is of this donor, on this diagonal, and covers ``at``."""
    for r in range(count - 1, max(count - RECENT, 0) - 1, -1):
        start = runs[r, RUN_TARGET_START]
        if (
            runs[r, RUN_SLOT] == slot
            and start - runs[r, RUN_DONOR_START] == shift
            and start <= at < start + runs[r, RUN_LENGTH]
        ):
            return True
    return False


@kernel_part
def extend_chain(
    store: Store,
    posting: int,
    tokens: NDArray[np.uint32],
    at: int,
    namespace: int,
    shape: tuple[int, int, int],
    runs: NDArray[np.int64],
    count: int,
) -> tuple[int, int]:
    """Compare up to CHAIN donors around the anchor ``at``; returns the number of runs and the tokens compared."""
    gram, _, least = shape
    work = 0
    for _ in range(CHAIN):
        if posting == 0:
            break
        slot = int(store.posts[posting, POST_DONOR])
        position = position_of(int(store.posts[posting, POST_POSITION]))
        posting = int(store.posts[posting, POST_NEXT])
        work += 1
        if store.donors[slot, DONOR_LIVE] == 0 or store.donors[slot, DONOR_NAMESPACE] != namespace:
            continue
        if is_known(runs, count, slot, at - position, at):
            continue
        ahead = equal_ahead(store, slot, position, tokens, at)
        work += ahead
        if ahead < gram:
            continue
        behind = equal_behind(store, slot, position, tokens, at)
        work += behind
        if behind + ahead >= least:
            runs[count, RUN_SLOT] = slot
            runs[count, RUN_DONOR_START] = position - behind
            runs[count, RUN_TARGET_START] = at - behind
            runs[count, RUN_LENGTH] = behind + ahead
            count += 1
    return count, work


@kernel_part
def probe(
    store: Store,
    tag: int,
    tokens: NDArray[np.uint32],
    at: int,
    namespace: int,
    shape: tuple[int, int, int],
    heads: NDArray[np.int32],
    runs: NDArray[np.int64],
    count: int,
) -> tuple[int, int]:
    """Extend every donor that shares the gram at ``at``, or, where too many do, those that agree furthest around it
    and, at one gram in ``HEAD_GRAMS``, in how they begin.
    """
    place, _ = find_gram(store, tag, namespace, tokens, at, shape[0])
    if place < 0:
        return count, 1
    head = head_of(store.table[place])
    if head >= GONE:
        return extend_chain(store, max(head, 0), tokens, at, namespace, shape, runs, count)
    work = 0
    for side in range(2):
        root = -head - 1 if side == AFTER else int(store.nodes[-head - 1, NODE_LINK])
        leaf = leaf_towards(store, root, tokens, at, shape[0], side, heads)
        count, cost = extend_chain(store, leaf, tokens, at, namespace, shape, runs, count)
        work += cost + DEPTH
    return count, work


@kernel
def find_runs(
    store: Store,
    tokens: NDArray[np.uint32],
    positions: NDArray[np.int32],
    tags: NDArray[np.int64],
    namespace: int,
    shape: tuple[int, int, int],
    weights: NDArray[np.int64],
    work_limit: int,
    runs: NDArray[np.int64],
) -> tuple[int, bool]:
    """Fill ``runs`` (room for two probes of two chains an anchor); returns how many, and whether work ran out.

    ``shape`` is (gram, guarantee, minimum length). An anchor deep inside a run already found is skipped: every window
    it can represent lies inside that run, so a run that reaches past either end is found at another anchor. Only the
    anchors in ``HEAD_GRAMS`` are tried there as well, for donors of the same text in a nearer context. In periodic
    text, where anchors are everywhere, one in ``gram`` is tried first and the others only where something is left.
    """
    gram, guarantee, _ = shape
    heads = head_hashes(tokens, weights)
    lead = guarantee - gram  # an anchor is at most this far after the start of its window
    count = 0
    seen = 0
    work = 0
    reach_start = 0
    reach_end = 0
    last = -1
    deferred = np.zeros(0, np.bool_)
    for a in range(len(positions)):
        at = int(positions[a])
        if reach_start + lead <= at <= reach_end - guarantee and not is_head_gram(int(tags[a])):
            continue
        if last >= 0 and tags[a] == tags[last] and at - positions[last] < gram and a + 1 < len(positions):
            if len(deferred) == 0:
                deferred = np.zeros(len(positions), np.bool_)
            deferred[a] = True
            continue
        last = a
        count, cost = probe(store, int(tags[a]), tokens, at, namespace, shape, heads, runs, count)
        work += cost
        while seen < count:
            end = int(runs[seen, RUN_TARGET_START] + runs[seen, RUN_LENGTH])
            if end > reach_end:
                reach_start = int(runs[seen, RUN_TARGET_START])
                reach_end = end
            seen += 1
        if work > work_limit:
            return count, True
    if len(deferred) == 0:
        return count, False
    left = work_limit - work
    return cover_leftovers(store, tokens, positions, tags, deferred, namespace, shape, heads, left, runs, count)


@kernel_part
def cover_leftovers(
    store: Store,
    tokens: NDArray[np.uint32],
    positions: NDArray[np.int32],
    tags: NDArray[np.int64],
    deferred: NDArray[np.bool_],
    namespace: int,
    shape: tuple[int, int, int],
    heads: NDArray[np.int32],
    work_limit: int,
    runs: NDArray[np.int64],
    count: int,
) -> tuple[int, bool]:
    """Probe the deferred anchors whose surroundings the runs found so far do not cover."""
    gram, guarantee, _ = shape
    covered = np.zeros(len(tokens), np.bool_)
    seen = 0
    work = 0
    for a in range(len(positions)):
        if not deferred[a]:
            continue
        while seen < count:
            start = runs[seen, RUN_TARGET_START]
            covered[start : start + runs[seen, RUN_LENGTH]] = True
            work += runs[seen, RUN_LENGTH] >> 3
            seen += 1
        at = int(positions[a])
        work += guarantee >> 3
        if covered[max(at + gram - guarantee, 0) : at + guarantee].all():
            continue
        count, cost = probe(store, int(tags[a]), tokens, at, namespace, shape, heads, runs, count)
        work += cost
        if work > work_limit:
            return count, True
    return count, False
