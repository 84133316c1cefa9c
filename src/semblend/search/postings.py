"""Who has this gram: chains of postings, and context tries once a chain would grow past CHAIN.

Boilerplate stands in every donor. A plain chain of it would be as long as there are donors; a bounded walk would miss
the one donor that goes on as the recipient does. So when more than CHAIN donors share a gram, its postings move into
two tries, one keyed by the tokens that follow the gram and one by the tokens before it, at most DEPTH deep. A node
stands where donors part ways: all below it agree for NODE_DEPTH tokens and differ in the next, so a thousand donors
with one continuation are one node. Walking down with the recipient's own tokens ends at a donor that agrees with it as
far to that side as any donor does; at DEPTH the neighbouring anchors take over. A walk is bounded by CHAIN + DEPTH
however many donors there are, and no equal run of GUARANTEE tokens loses a position.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.compiled import kernel
from semblend.search.donors import token_at
from semblend.search.layout import (
    DONOR_LENGTH,
    DONOR_NAMESPACE,
    DONOR_POSTS,
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
    POST_SIBLING,
    STATE_NODE_FREE,
    STATE_NODE_HIGH,
    STATE_NODE_RETIRED,
    STATE_NODE_USED,
    STATE_POST_FREE,
    STATE_POST_HIGH,
    STATE_POST_USED,
    STATE_VERSION,
    Store,
)
from semblend.search.table import (
    GONE,
    HEAD_BITS,
    add_entry,
    child_tag,
    extent_of,
    head_of,
    home,
    pack,
    set_head,
)

CHAIN: Final = 8
DEPTH: Final = 32
END: Final = -1  # "the donor ends here" as a context token; token ids are below 2**31
AFTER: Final = 0
BEFORE: Final = 1


@kernel
def position_of(raw: int) -> int:
    """Postings of the BEFORE trie store the complement of their position, so that removal knows where they live."""
    return raw if raw >= 0 else ~raw


@kernel
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
def context_token(store: Store, slot: int, position: int, gram: int, side: int, depth: int) -> int:
    """The donor's token ``depth`` places behind (AFTER) or before (BEFORE) the gram at ``position``."""
    place = position + gram + depth if side == AFTER else position - 1 - depth
    if place < 0 or place >= store.donors[slot, DONOR_LENGTH]:
        return END
    return token_at(store, slot, place)


@kernel
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


@kernel
def push(store: Store, node: int, posting: int) -> None:
    head = int(store.nodes[node, NODE_HEAD])
    store.posts[posting, POST_NEXT] = head
    store.posts[posting, POST_PREV] = 0
    if head != 0:
        store.posts[head, POST_PREV] = posting
    store.nodes[node, NODE_HEAD] = posting
    store.nodes[node, NODE_COUNT] += 1


@kernel
def add_leaf(store: Store, node: int, token: int, posting: int) -> None:
    """A new child of ``node`` with one posting, complete before a reader can come upon it."""
    child = new_node(store, node, token)
    push(store, child, posting)
    first = int(store.nodes[node, NODE_CHILD])
    store.nodes[child, NODE_NEXT] = first
    if first != 0:
        store.nodes[first, NODE_PREV] = child
    add_entry(store, child_tag(node, token), child)
    store.nodes[node, NODE_CHILD] = child


@kernel
def sample_of(store: Store, node: int) -> int:
    """Any posting below ``node``: it knows the tokens that all of them share."""
    while store.nodes[node, NODE_CHILD] != 0:
        node = int(store.nodes[node, NODE_CHILD])
    return int(store.nodes[node, NODE_HEAD])


@kernel
def same_gram(store: Store, posting: int, namespace: int, tokens: NDArray[np.uint32], at: int, gram: int) -> bool:
    """Whether a posting stands for the very tokens at ``at``, in the same namespace: tags can collide, these cannot."""
    slot = int(store.posts[posting, POST_DONOR])
    if posting == 0 or store.donors[slot, DONOR_NAMESPACE] != namespace:
        return False
    position = position_of(int(store.posts[posting, POST_POSITION]))
    i = 0
    while i < gram and token_at(store, slot, position + i) == tokens[at + i]:
        i += 1
    return i == gram


@kernel
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


@kernel
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


@kernel
def posting_token(store: Store, posting: int, gram: int, side: int, depth: int) -> int:
    position = position_of(int(store.posts[posting, POST_POSITION]))
    return context_token(store, int(store.posts[posting, POST_DONOR]), position, gram, side, depth)


@kernel
def split_leaf(store: Store, node: int, gram: int, side: int, begin: int) -> None:
    """A leaf is full: part its postings where they first differ, or, if nowhere, let it hold any number."""
    first = int(store.nodes[node, NODE_HEAD])
    depth = DEPTH
    posting = int(store.posts[first, POST_NEXT])
    while posting != 0:
        depth = agreement(store, first, posting, gram, side, begin, depth)
        posting = int(store.posts[posting, POST_NEXT])
    store.nodes[node, NODE_DEPTH] = depth
    if depth == DEPTH:
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


@kernel
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


@kernel
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


@kernel
def insert_in_trie(store: Store, place: int, posting: int, gram: int, side: int) -> None:
    """Hang a posting of the gram at ``place`` where its context belongs.

    A change of the trie's shape makes the version odd while it lasts: a reader that overlaps with it looks again.
    """
    root = -head_of(store.table[place]) - 1
    node = root if side == AFTER else int(store.nodes[root, NODE_LINK])
    begin = 0
    while True:
        if store.nodes[node, NODE_CHILD] == 0 and store.nodes[node, NODE_DEPTH] < DEPTH:
            if store.nodes[node, NODE_COUNT] < CHAIN:
                push(store, node, posting)
                return
            split_leaf(store, node, gram, side, begin)
        limit = int(store.nodes[node, NODE_DEPTH])
        depth = agreement(store, sample_of(store, node), posting, gram, side, begin, limit)
        if depth < limit:
            part_above(store, place, node, posting, gram, side, depth)
            return
        if limit == DEPTH:
            push(store, node, posting)
            return
        token = posting_token(store, posting, gram, side, limit)
        child = find_child(store, node, token)
        if child == 0:
            add_leaf(store, node, token, posting)
            return
        node = child
        begin = limit + 1


@kernel
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


@kernel
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


@kernel
def prune(store: Store, node: int) -> None:
    """Take empty leaves out, upwards, as far as the root. What leaves keeps its parent, so a reader finds its way."""
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


@kernel
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


@kernel
def remove_posting(store: Store, posting: int, tag: int, tokens: NDArray[np.uint32], gram: int) -> None:
    """Unlink one posting. Its own links stay as they are, so that a reader standing on it finds its way out."""
    slot = int(store.posts[posting, POST_DONOR])
    raw = int(store.posts[posting, POST_POSITION])
    namespace = int(store.donors[slot, DONOR_NAMESPACE])
    place, _ = find_gram(store, tag, namespace, tokens, position_of(raw), gram)
    if place < 0:
        raise RuntimeError("the index does not know a posting it holds")
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
    node = -head - 1 if side == AFTER else int(store.nodes[-head - 1, NODE_LINK])
    while store.nodes[node, NODE_CHILD] != 0:
        node = find_child(store, node, posting_token(store, posting, gram, side, int(store.nodes[node, NODE_DEPTH])))
    if preceding == 0:
        store.nodes[node, NODE_HEAD] = following
    store.nodes[node, NODE_COUNT] -= 1
    if store.nodes[node, NODE_COUNT] == 0:
        prune(store, node)
        retire_tries(store, place)


@kernel
def release_postings(store: Store, posting: int) -> None:
    while posting != 0:
        following = int(store.posts[posting, POST_SIBLING])
        store.posts[posting, POST_SIBLING] = store.state[STATE_POST_FREE]
        store.state[STATE_POST_FREE] = posting
        store.state[STATE_POST_USED] -= 1
        posting = following


@kernel
def release_nodes(store: Store, node: int) -> None:
    while node != 0:
        following = int(store.nodes[node, NODE_LINK])
        store.nodes[node, NODE_LINK] = store.state[STATE_NODE_FREE]
        store.state[STATE_NODE_FREE] = node
        store.state[STATE_NODE_USED] -= 1
        node = following
