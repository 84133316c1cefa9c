"""The donors of a gram: a chain of at most CHAIN postings, or, beyond that, a pair of context tries.

A key of the table is a tag; what it stands for is compared as tokens and namespace wherever it matters, so grams whose
tags collide share a probe sequence and nothing else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel_part
from semblend.search.context_trie import (
    AFTER,
    BEFORE,
    CHAIN,
    END,
    insert_in_trie,
    new_node,
    remove_from_trie,
    sample_of,
)
from semblend.search.donors import token_at
from semblend.search.layout import (
    DONOR_NAMESPACE,
    NODE_CHILD,
    NODE_COUNT,
    NODE_LINK,
    POST_DONOR,
    POST_NEXT,
    POST_POSITION,
    POST_PREV,
    STATE_NODE_RETIRED,
    STATE_VERSION,
    Store,
)
from semblend.search.postings import new_posting, position_of
from semblend.search.table import GONE, HEAD_BITS, add_entry, extent_of, head_of, home, set_head


@kernel_part
def same_gram(store: Store, posting: int, namespace: int, tokens: NDArray[np.uint32], at: int, gram: int) -> bool:
    """Whether a posting has exactly the tokens at ``at`` and the same namespace: tags can collide, tokens cannot."""
    slot = int(store.posts[posting, POST_DONOR])
    if posting == 0 or store.donors[slot, DONOR_NAMESPACE] != namespace:
        return False
    position = position_of(int(store.posts[posting, POST_POSITION]))
    i = 0
    while i < gram and token_at(store, slot, position + i) == tokens[at + i]:
        i += 1
    return i == gram


@kernel_part
def find_gram(
    store: Store, tag: int, namespace: int, tokens: NDArray[np.uint32], at: int, gram: int
) -> tuple[int, int]:
    """The place of this gram's donors, or -1; and a place with the same tag that has lost its donors, or -1."""
    _, begin, end = extent_of(store, tag)
    place = home(store, tag, begin, end)
    vacant = -1
    while True:
        entry = int(store.table[place])
        if entry == 0:
            return -1, vacant
        if entry >> HEAD_BITS == tag:
            head = head_of(entry)
            if head == GONE:
                vacant = place
            else:
                sample = head
                if head < 0:
                    sample = sample_of(store, -head - 1)
                    if sample == 0:  # a donor is just leaving, and is only half gone
                        sample = sample_of(store, int(store.nodes[-head - 1, NODE_LINK]))
                if same_gram(store, sample, namespace, tokens, at, gram):
                    return place, vacant
        place += 1
        if place == end:
            place = begin


@kernel_part
def grow_tries(store: Store, place: int, gram: int) -> None:
    """Turn the full chain at ``place`` into a pair of tries."""
    store.state[STATE_VERSION] += 1
    entry = int(store.table[place])
    root = new_node(store, 0, END)
    store.nodes[root, NODE_LINK] = new_node(store, 0, END)
    set_head(store, place, -(root + 1))
    posting = head_of(entry)
    while posting != 0:
        following = int(store.posts[posting, POST_NEXT])
        twin = new_posting(store, int(store.posts[posting, POST_DONOR]), ~int(store.posts[posting, POST_POSITION]))
        insert_in_trie(store, place, posting, gram, AFTER)
        insert_in_trie(store, place, twin, gram, BEFORE)
        posting = following
    store.state[STATE_VERSION] += 1


@kernel_part
def insert_posting(store: Store, tag: int, slot: int, tokens: NDArray[np.uint32], position: int, gram: int) -> None:
    place, vacant = find_gram(store, tag, int(store.donors[slot, DONOR_NAMESPACE]), tokens, position, gram)
    if place < 0:
        posting = new_posting(store, slot, position)
        if vacant < 0:
            add_entry(store, tag, posting)
        else:
            set_head(store, vacant, posting)
        return
    head = head_of(store.table[place])
    if head > 0:
        length = 0
        walker = head
        while walker != 0:
            walker = int(store.posts[walker, POST_NEXT])
            length += 1
        if length < CHAIN:
            posting = new_posting(store, slot, position)
            store.posts[posting, POST_NEXT] = head
            store.posts[head, POST_PREV] = posting
            set_head(store, place, posting)
            return
        grow_tries(store, place, gram)
    insert_in_trie(store, place, new_posting(store, slot, position), gram, AFTER)
    insert_in_trie(store, place, new_posting(store, slot, ~position), gram, BEFORE)


@kernel_part
def retire_tries(store: Store, place: int) -> None:
    """Once both tries of a gram are empty, the gram is an ordinary key without donors again."""
    entry = int(store.table[place])
    root = -head_of(entry) - 1
    other = int(store.nodes[root, NODE_LINK])
    if store.nodes[root, NODE_COUNT] != 0 or store.nodes[root, NODE_CHILD] != 0:
        return
    if store.nodes[other, NODE_COUNT] != 0 or store.nodes[other, NODE_CHILD] != 0:
        return
    set_head(store, place, GONE)
    store.nodes[other, NODE_LINK] = store.state[STATE_NODE_RETIRED]
    store.state[STATE_NODE_RETIRED] = root


@kernel_part
def remove_posting(store: Store, posting: int, tag: int, tokens: NDArray[np.uint32], gram: int) -> None:
    """Unlink one posting. Its own links stay as they are, so that a reader at this posting can continue."""
    slot = int(store.posts[posting, POST_DONOR])
    raw = int(store.posts[posting, POST_POSITION])
    namespace = int(store.donors[slot, DONOR_NAMESPACE])
    place, _ = find_gram(store, tag, namespace, tokens, position_of(raw), gram)
    if place < 0:
        raise RuntimeError("corrupt index: a posting is missing from its gram")
    following = int(store.posts[posting, POST_NEXT])
    preceding = int(store.posts[posting, POST_PREV])
    if following != 0:
        store.posts[following, POST_PREV] = preceding
    if preceding != 0:
        store.posts[preceding, POST_NEXT] = following
    head = head_of(store.table[place])
    if head > 0:
        if preceding == 0:
            set_head(store, place, following if following != 0 else GONE)
        return
    side = AFTER if raw >= 0 else BEFORE
    root = -head - 1 if side == AFTER else int(store.nodes[-head - 1, NODE_LINK])
    if remove_from_trie(store, root, posting, gram, side):
        retire_tries(store, place)
