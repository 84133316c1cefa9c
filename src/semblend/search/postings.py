"""Who has this gram: chains of postings, and context tries once a chain would grow past CHAIN.

Boilerplate stands in every donor. A plain chain of it would be as long as there are donors; a bounded walk would miss
the one donor that goes on as the recipient does. So when more than CHAIN donors share a gram, its postings move into
two tries, one keyed by the tokens that follow the gram and one by the tokens before it, split only where a leaf would
again exceed CHAIN and at most DEPTH tokens deep. Walking down with the recipient's own tokens ends at a donor that
agrees with it as far to that side as any donor does; at DEPTH the neighbouring anchors take over. A walk is bounded by
CHAIN + DEPTH however many donors there are, and no equal run of GUARANTEE tokens loses a position.
"""

from __future__ import annotations

from typing import Final

from semblend.compiled import kernel
from semblend.search.donors import token_at
from semblend.search.layout import (
    DONOR_LENGTH,
    DONOR_POSTS,
    NODE_CHILD,
    NODE_COUNT,
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
    STATE_TABLE_USED,
    STATE_VERSION,
    Store,
)
from semblend.search.table import GONE, HEAD_BITS, add_entry, child_tag, find_key, head_of, home, pack

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
    table = store.table
    tag = child_tag(node, token)
    place = home(table, tag)
    while True:
        entry = int(table[place])
        if entry == 0:
            return 0
        if entry >> HEAD_BITS == tag:
            child = head_of(entry)
            if child > 0 and store.nodes[child, NODE_PARENT] == node and store.nodes[child, NODE_TOKEN] == token:
                return child
        place += 1
        if place == len(table):
            place = 0


@kernel
def add_child(store: Store, node: int, token: int) -> int:
    child = new_node(store, node, token)
    first = int(store.nodes[node, NODE_CHILD])
    store.nodes[child, NODE_NEXT] = first
    if first != 0:
        store.nodes[first, NODE_PREV] = child
    add_entry(store, child_tag(node, token), child)
    store.nodes[node, NODE_CHILD] = child
    return child


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
def split(store: Store, node: int, gram: int, side: int, depth: int) -> None:
    """Move a full leaf's postings one token deeper. Readers that overlap see the version change and look again."""
    store.state[STATE_VERSION] += 1
    posting = int(store.nodes[node, NODE_HEAD])
    store.nodes[node, NODE_HEAD] = 0
    store.nodes[node, NODE_COUNT] = 0
    while posting != 0:
        following = int(store.posts[posting, POST_NEXT])
        slot = int(store.posts[posting, POST_DONOR])
        position = position_of(int(store.posts[posting, POST_POSITION]))
        token = context_token(store, slot, position, gram, side, depth)
        child = find_child(store, node, token)
        if child == 0:
            child = add_child(store, node, token)
        push(store, child, posting)
        posting = following
    store.state[STATE_VERSION] += 1


@kernel
def insert_in_trie(store: Store, root: int, posting: int, gram: int, side: int) -> None:
    slot = int(store.posts[posting, POST_DONOR])
    position = position_of(int(store.posts[posting, POST_POSITION]))
    node = root
    depth = 0
    while True:
        if store.nodes[node, NODE_CHILD] == 0:
            if depth == DEPTH or store.nodes[node, NODE_COUNT] < CHAIN:
                push(store, node, posting)
                return
            split(store, node, gram, side, depth)
        token = context_token(store, slot, position, gram, side, depth)
        child = find_child(store, node, token)
        if child == 0:
            child = add_child(store, node, token)
        node = child
        depth += 1


@kernel
def grow_tries(store: Store, place: int, gram: int) -> int:
    """Turn the full chain at ``place`` into a pair of tries; returns the root of the AFTER trie."""
    store.state[STATE_VERSION] += 1
    entry = int(store.table[place])
    root = new_node(store, 0, END)
    other = new_node(store, 0, END)
    store.nodes[root, NODE_LINK] = other
    posting = head_of(entry)
    while posting != 0:
        following = int(store.posts[posting, POST_NEXT])
        slot = int(store.posts[posting, POST_DONOR])
        position = int(store.posts[posting, POST_POSITION])
        insert_in_trie(store, root, posting, gram, AFTER)
        twin = new_posting(store, slot, ~position)
        insert_in_trie(store, other, twin, gram, BEFORE)
        posting = following
    store.table[place] = pack(entry >> HEAD_BITS, -(root + 1))
    store.state[STATE_VERSION] += 1
    return root


@kernel
def insert_posting(store: Store, tag: int, slot: int, position: int, gram: int) -> None:
    place = find_key(store.table, tag)
    if place < 0:
        posting = new_posting(store, slot, position)
        store.table[-1 - place] = pack(tag, posting)
        store.state[STATE_TABLE_USED] += 1
        return
    head = head_of(store.table[place])
    if head >= GONE:
        length = 0
        walker = max(head, 0)
        while walker != 0:
            walker = int(store.posts[walker, POST_NEXT])
            length += 1
        if length < CHAIN:
            posting = new_posting(store, slot, position)
            if head > 0:
                store.posts[posting, POST_NEXT] = head
                store.posts[head, POST_PREV] = posting
            store.table[place] = pack(tag, posting)
            return
        root = grow_tries(store, place, gram)
    else:
        root = -head - 1
    insert_in_trie(store, root, new_posting(store, slot, position), gram, AFTER)
    insert_in_trie(store, int(store.nodes[root, NODE_LINK]), new_posting(store, slot, ~position), gram, BEFORE)


@kernel
def prune(store: Store, node: int) -> None:
    """Take empty leaves out, upwards, as far as the root."""
    store.state[STATE_VERSION] += 1
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
        table = store.table
        tag = child_tag(parent, int(store.nodes[node, NODE_TOKEN]))
        place = home(table, tag)
        while table[place] != pack(tag, node):
            place += 1
            if place == len(table):
                place = 0
        table[place] = pack(tag, GONE)
        store.nodes[node, NODE_LINK] = store.state[STATE_NODE_RETIRED]
        store.state[STATE_NODE_RETIRED] = node
        node = parent
    store.state[STATE_VERSION] += 1


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
    store.table[place] = pack(entry >> HEAD_BITS, GONE)
    store.nodes[other, NODE_LINK] = store.state[STATE_NODE_RETIRED]
    store.state[STATE_NODE_RETIRED] = root


@kernel
def remove_posting(store: Store, posting: int, tag: int, gram: int) -> None:
    """Unlink one posting. Its own links stay as they are, so that a reader standing on it finds its way out."""
    following = int(store.posts[posting, POST_NEXT])
    preceding = int(store.posts[posting, POST_PREV])
    if following != 0:
        store.posts[following, POST_PREV] = preceding
    if preceding != 0:
        store.posts[preceding, POST_NEXT] = following
    place = find_key(store.table, tag)
    head = head_of(store.table[place])
    if head >= GONE:
        if preceding == 0:
            store.table[place] = pack(tag, following if following != 0 else GONE)
        return
    raw = int(store.posts[posting, POST_POSITION])
    side = AFTER if raw >= 0 else BEFORE
    node = -head - 1 if side == AFTER else int(store.nodes[-head - 1, NODE_LINK])
    slot = int(store.posts[posting, POST_DONOR])
    depth = 0
    while store.nodes[node, NODE_CHILD] != 0:
        node = find_child(store, node, context_token(store, slot, position_of(raw), gram, side, depth))
        depth += 1
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
