"""Context tries: which of the many donors that share a gram continues like the recipient.

Boilerplate occurs in every donor. A plain chain of it would have one entry per donor; a bounded walk would miss the
one donor that continues like the recipient. So when more than CHAIN donors share a gram, its postings move into
two tries, one keyed by the tokens that follow the gram and one by the tokens before it, at most DEPTH deep. A node
is where donors diverge: all below it agree for NODE_DEPTH tokens and differ in the next, so a thousand donors
with one continuation are one node. Walking down with the recipient's own tokens ends at a donor that agrees with it as
far to that side as any donor does; at DEPTH the neighbouring anchors take over. A walk is bounded by CHAIN + DEPTH
however many donors there are, and no equal run of GUARANTEE tokens loses a position.

Donors of one document agree to DEPTH on both sides, and the one whose context is nearest to the recipient's should be
found among any number of them. So at one gram in HEAD_GRAMS the trie of following tokens continues with hashes of how
the donor begins (``heads``): of a thousand donors of a document a walk ends at one that shares the longest head.
Donors with the same head form a chain, newest first, of which CHAIN are compared.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from semblend.search import heads
from semblend.search.donors import token_at
from semblend.search.layout import (
    DONOR_HEADS,
    DONOR_LENGTH,
    NODE_CHILD,
    NODE_COUNT,
    NODE_DEPTH,
    NODE_HEAD,
    NODE_LINK,
    NODE_NEXT,
    NODE_PARENT,
    NODE_PREV,
    NODE_TOKEN,
    POST_DONOR,
    POST_NEXT,
    POST_POSITION,
    POST_PREV,
    STATE_NODE_FREE,
    STATE_NODE_HIGH,
    STATE_NODE_RETIRED,
    STATE_NODE_USED,
    STATE_VERSION,
    Store,
)
from semblend.search.postings import position_of
from semblend.search.table import GONE, HEAD_BITS, add_entry, child_tag, extent_of, head_of, home, pack, set_head

CHAIN: Final = 8
DEPTH: Final = 32
HEAD_DEPTH: Final = DEPTH + heads.COUNT
HEAD_GRAMS: Final = 8  # a document of 768 tokens has about 45 anchors, five of which know how donors begin
END: Final = -1  # "the donor ends here" as a context token; token ids are below 2**31
AFTER: Final = 0
BEFORE: Final = 1


@kernel_part
def new_node(store: Store, parent: int, token: int) -> int:
    state = store.state
    node = int(state[STATE_NODE_FREE])
    if node != 0:
        state[STATE_NODE_FREE] = store.nodes[node, NODE_LINK]
    else:
        state[STATE_NODE_HIGH] += 1
        node = int(state[STATE_NODE_HIGH])
    state[STATE_NODE_USED] += 1
    row = store.nodes[node]
    row[:] = 0
    row[NODE_PARENT] = parent
    row[NODE_TOKEN] = token
    return node


@kernel
def release_nodes(store: Store, node: int) -> None:
    while node != 0:
        following = int(store.nodes[node, NODE_LINK])
        store.nodes[node, NODE_LINK] = store.state[STATE_NODE_FREE]
        store.state[STATE_NODE_FREE] = node
        store.state[STATE_NODE_USED] -= 1
        node = following


@kernel_part
def is_head_gram(tag: int) -> bool:
    return ((tag >> 1) & (HEAD_GRAMS - 1)) == 0


@kernel_part
def depth_limit(entry: int, side: int) -> int:
    """How deep the trie of the gram with this table entry may become."""
    return HEAD_DEPTH if side == AFTER and is_head_gram(entry >> HEAD_BITS) else DEPTH


@kernel_part
def context_token(store: Store, slot: int, position: int, gram: int, side: int, depth: int) -> int:
    """The donor's token ``depth`` places after (AFTER) or before (BEFORE) the gram at ``position``; from DEPTH on, a
    hash of how the donor begins.
    """
    if depth >= DEPTH:
        return int(store.donors[slot, DONOR_HEADS + depth - DEPTH])
    place = position + gram + depth if side == AFTER else position - 1 - depth
    if place < 0 or place >= store.donors[slot, DONOR_LENGTH]:
        return END
    return token_at(store, slot, place)


@kernel_part
def posting_token(store: Store, posting: int, gram: int, side: int, depth: int) -> int:
    position = position_of(int(store.posts[posting, POST_POSITION]))
    return context_token(store, int(store.posts[posting, POST_DONOR]), position, gram, side, depth)


@kernel_part
def find_child(store: Store, node: int, token: int) -> int:
    if store.nodes[node, NODE_CHILD] == 0:
        return 0
    tag = child_tag(node, token)
    _, begin, end = extent_of(store, tag)
    place = home(store, tag, begin, end)
    while True:
        entry = int(store.table[place])
        if entry == 0:
            return 0
        if entry >> HEAD_BITS == tag:
            child = head_of(entry)
            if child > 0 and store.nodes[child, NODE_PARENT] == node and store.nodes[child, NODE_TOKEN] == token:
                return child
        place += 1
        if place == end:
            place = begin


@kernel_part
def replace_child(store: Store, parent: int, token: int, old: int, new: int) -> None:
    """Let the table's place for ``old`` hold ``new`` (a node, or GONE)."""
    tag = child_tag(parent, token)
    _, begin, end = extent_of(store, tag)
    place = home(store, tag, begin, end)
    while store.table[place] != pack(tag, old):
        place += 1
        if place == end:
            place = begin
    set_head(store, place, new)


@kernel_part
def push(store: Store, node: int, posting: int) -> None:
    head = int(store.nodes[node, NODE_HEAD])
    store.posts[posting, POST_NEXT] = head
    store.posts[posting, POST_PREV] = 0
    if head != 0:
        store.posts[head, POST_PREV] = posting
    store.nodes[node, NODE_HEAD] = posting
    store.nodes[node, NODE_COUNT] += 1


@kernel_part
def add_leaf(store: Store, node: int, token: int, posting: int) -> None:
    """A new child of ``node`` with one posting, complete before a reader can reach it."""
    child = new_node(store, node, token)
    push(store, child, posting)
    first = int(store.nodes[node, NODE_CHILD])
    store.nodes[child, NODE_NEXT] = first
    if first != 0:
        store.nodes[first, NODE_PREV] = child
    add_entry(store, child_tag(node, token), child)
    store.nodes[node, NODE_CHILD] = child


@kernel_part
def sample_of(store: Store, node: int) -> int:
    """Any posting below ``node``: it knows the tokens that all of them share."""
    while store.nodes[node, NODE_CHILD] != 0:
        node = int(store.nodes[node, NODE_CHILD])
    return int(store.nodes[node, NODE_HEAD])


@kernel_part
def agreement(store: Store, a: int, b: int, gram: int, side: int, begin: int, limit: int) -> int:
    """Up to which depth, from ``begin`` to at most ``limit``, the contexts of two postings agree."""
    slot_a = int(store.posts[a, POST_DONOR])
    slot_b = int(store.posts[b, POST_DONOR])
    position_a = position_of(int(store.posts[a, POST_POSITION]))
    position_b = position_of(int(store.posts[b, POST_POSITION]))
    depth = begin
    while depth < limit:
        token = context_token(store, slot_a, position_a, gram, side, depth)
        if token != context_token(store, slot_b, position_b, gram, side, depth):
            break
        depth += 1
    return depth


@kernel_part
def split_leaf(store: Store, node: int, gram: int, side: int, begin: int, deepest: int) -> None:
    """A leaf is full: part its postings where they first differ, or, if nowhere, let it hold any number."""
    first = int(store.nodes[node, NODE_HEAD])
    depth = deepest
    posting = int(store.posts[first, POST_NEXT])
    while posting != 0:
        depth = agreement(store, first, posting, gram, side, begin, depth)
        posting = int(store.posts[posting, POST_NEXT])
    store.nodes[node, NODE_DEPTH] = depth
    if depth == deepest:
        return
    store.state[STATE_VERSION] += 1
    store.nodes[node, NODE_HEAD] = 0
    store.nodes[node, NODE_COUNT] = 0
    posting = first
    while posting != 0:
        following = int(store.posts[posting, POST_NEXT])
        token = posting_token(store, posting, gram, side, depth)
        child = find_child(store, node, token)
        if child == 0:
            add_leaf(store, node, token, posting)
        else:
            push(store, child, posting)
        posting = following
    store.state[STATE_VERSION] += 1


@kernel_part
def part_above(store: Store, place: int, node: int, posting: int, gram: int, side: int, depth: int) -> None:
    """The posting leaves the path to ``node`` at ``depth``: a new node there takes the place of ``node``."""
    store.state[STATE_VERSION] += 1
    parent = int(store.nodes[node, NODE_PARENT])
    fork = new_node(store, parent, int(store.nodes[node, NODE_TOKEN]))
    store.nodes[fork, NODE_DEPTH] = depth
    token = posting_token(store, sample_of(store, node), gram, side, depth)
    if parent == 0:
        entry = int(store.table[place])
        if side == AFTER:
            store.nodes[fork, NODE_LINK] = store.nodes[node, NODE_LINK]
            set_head(store, place, -(fork + 1))
        else:
            store.nodes[-head_of(entry) - 1, NODE_LINK] = fork
        store.nodes[node, NODE_LINK] = 0
    else:
        for column, back in ((NODE_NEXT, NODE_PREV), (NODE_PREV, NODE_NEXT)):
            neighbour = int(store.nodes[node, column])
            store.nodes[fork, column] = neighbour
            if neighbour != 0:
                store.nodes[neighbour, back] = fork
        if store.nodes[parent, NODE_CHILD] == node:
            store.nodes[parent, NODE_CHILD] = fork
        replace_child(store, parent, int(store.nodes[node, NODE_TOKEN]), node, fork)
    store.nodes[node, NODE_PARENT] = fork
    store.nodes[node, NODE_TOKEN] = token
    store.nodes[node, NODE_NEXT] = 0
    store.nodes[node, NODE_PREV] = 0
    store.nodes[fork, NODE_CHILD] = node
    add_entry(store, child_tag(fork, token), node)
    add_leaf(store, fork, posting_token(store, posting, gram, side, depth), posting)
    store.state[STATE_VERSION] += 1


@kernel_part
def insert_in_trie(store: Store, place: int, posting: int, gram: int, side: int) -> None:
    """Hang a posting of the gram at ``place`` where its context belongs.

    A change of the trie's shape makes the version odd while it lasts: a reader that overlaps with it retries.
    """
    root = -head_of(store.table[place]) - 1
    node = root if side == AFTER else int(store.nodes[root, NODE_LINK])
    deepest = depth_limit(int(store.table[place]), side)
    begin = 0
    while True:
        if store.nodes[node, NODE_CHILD] == 0 and store.nodes[node, NODE_DEPTH] < deepest:
            if store.nodes[node, NODE_COUNT] < CHAIN:
                push(store, node, posting)
                return
            split_leaf(store, node, gram, side, begin, deepest)
        limit = int(store.nodes[node, NODE_DEPTH])
        depth = agreement(store, sample_of(store, node), posting, gram, side, begin, limit)
        if depth < limit:
            part_above(store, place, node, posting, gram, side, depth)
            return
        if limit == deepest:
            push(store, node, posting)
            return
        token = posting_token(store, posting, gram, side, limit)
        child = find_child(store, node, token)
        if child == 0:
            add_leaf(store, node, token, posting)
            return
        node = child
        begin = limit + 1


@kernel_part
def prune(store: Store, node: int) -> None:
    """Remove empty leaves upwards to the root. A removed node keeps its parent link for readers that are still in
    it.
    """
    while store.nodes[node, NODE_PARENT] != 0:
        if store.nodes[node, NODE_COUNT] != 0 or store.nodes[node, NODE_CHILD] != 0:
            break
        parent = int(store.nodes[node, NODE_PARENT])
        following = int(store.nodes[node, NODE_NEXT])
        preceding = int(store.nodes[node, NODE_PREV])
        if following != 0:
            store.nodes[following, NODE_PREV] = preceding
        if preceding != 0:
            store.nodes[preceding, NODE_NEXT] = following
        else:
            store.nodes[parent, NODE_CHILD] = following
        replace_child(store, parent, int(store.nodes[node, NODE_TOKEN]), node, GONE)
        store.nodes[node, NODE_LINK] = store.state[STATE_NODE_RETIRED]
        store.state[STATE_NODE_RETIRED] = node
        node = parent


@kernel_part
def remove_from_trie(store: Store, root: int, posting: int, gram: int, side: int) -> bool:
    """Take an unlinked posting out of its leaf's count; says whether that emptied the leaf."""
    node = root
    while store.nodes[node, NODE_CHILD] != 0:
        node = find_child(store, node, posting_token(store, posting, gram, side, int(store.nodes[node, NODE_DEPTH])))
    if store.posts[posting, POST_PREV] == 0:
        store.nodes[node, NODE_HEAD] = store.posts[posting, POST_NEXT]
    store.nodes[node, NODE_COUNT] -= 1
    if store.nodes[node, NODE_COUNT] != 0:
        return False
    prune(store, node)
    return True


@kernel_part
def prompt_token(
    tokens: NDArray[np.uint32], at: int, gram: int, side: int, depth: int, heads: NDArray[np.int32]
) -> int:
    """The recipient's side of ``context_token``; -2, which no donor has, where the prompt ends."""
    if depth >= DEPTH:
        return int(heads[depth - DEPTH])
    place = at + gram + depth if side == AFTER else at - 1 - depth
    return int(tokens[place]) if 0 <= place < len(tokens) else -2


@kernel_part
def prompt_agreement(
    store: Store,
    posting: int,
    tokens: NDArray[np.uint32],
    at: int,
    gram: int,
    side: int,
    begin: int,
    limit: int,
    heads: NDArray[np.int32],
) -> int:
    """Up to which depth, from ``begin`` to at most ``limit``, the recipient agrees with a posting's context."""
    depth = begin
    while depth < limit:
        if prompt_token(tokens, at, gram, side, depth, heads) != posting_token(store, posting, gram, side, depth):
            break
        depth += 1
    return depth


@kernel_part
def leaf_towards(
    store: Store, root: int, tokens: NDArray[np.uint32], at: int, gram: int, side: int, heads: NDArray[np.int32]
) -> int:
    """The chain of donors that agree with the recipient around ``at`` as far to ``side`` as any donor does."""
    node = root
    begin = 0
    while store.nodes[node, NODE_CHILD] != 0:
        limit = int(store.nodes[node, NODE_DEPTH])
        sample = sample_of(store, node)
        if prompt_agreement(store, sample, tokens, at, gram, side, begin, limit, heads) < limit:
            return sample  # the recipient leaves the common path: every donor below agrees as far as possible
        child = find_child(store, node, prompt_token(tokens, at, gram, side, limit, heads))
        if child == 0:
            return sample  # no donor continues like this
        node = child
        begin = limit + 1
    head = int(store.nodes[node, NODE_HEAD])
    while head == 0 and store.nodes[node, NODE_PARENT] != 0:  # its last donor has just left
        node = int(store.nodes[node, NODE_PARENT])
        head = sample_of(store, node)
    return head
