"""Doubly linked lists threaded through node ids: O(1) everywhere, 8 bytes per known node, any number of lists.

Sentinels sit in front, so the arrays can grow with a stream: list `l` is entry `l`, node `n` is entry `lists + n`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel_part


class Links(NamedTuple):
    forward: NDArray[np.int32]  # towards the tail; a node in no list points to itself
    backward: NDArray[np.int32]  # towards the head
    lists: NDArray[np.int32]  # one element: how many lists


def make_links(node_count: int, lists: int) -> Links:
    alone = np.arange(lists + node_count, dtype=np.int32)
    return Links(alone, alone.copy(), np.full(1, lists, np.int32))


@kernel_part
def is_linked(links: Links, node: int) -> bool:
    entry = links.lists[0] + node
    return bool(links.forward[entry] != entry)


@kernel_part
def unlink(links: Links, node: int) -> None:
    """Take a node out of its list; nothing happens to one in no list."""
    entry = links.lists[0] + node
    ahead, behind = links.backward[entry], links.forward[entry]
    links.forward[ahead] = behind
    links.backward[behind] = ahead
    links.forward[entry] = entry
    links.backward[entry] = entry


@kernel_part
def push_head(links: Links, chosen: int, node: int) -> None:
    entry = links.lists[0] + node
    behind = links.forward[chosen]
    links.forward[chosen] = entry
    links.backward[entry] = chosen
    links.forward[entry] = behind
    links.backward[behind] = entry


@kernel_part
def push_tail(links: Links, chosen: int, node: int) -> None:
    entry = links.lists[0] + node
    ahead = links.backward[chosen]
    links.backward[chosen] = entry
    links.forward[entry] = chosen
    links.backward[entry] = ahead
    links.forward[ahead] = entry


@kernel_part
def take_place(links: Links, node: int, leaving: int) -> None:
    """Put `node` (in no list) in the position of `leaving`, which is then in no list."""
    entry, old = links.lists[0] + node, links.lists[0] + leaving
    ahead, behind = links.backward[old], links.forward[old]
    links.forward[ahead] = entry
    links.backward[entry] = ahead
    links.forward[entry] = behind
    links.backward[behind] = entry
    links.forward[old] = old
    links.backward[old] = old


@kernel_part
def tail(links: Links, chosen: int) -> int:
    """The node next to leave, -1 where the list is empty."""
    entry = int(links.backward[chosen])
    return entry - int(links.lists[0]) if entry != chosen else -1


@kernel_part
def ahead_of(links: Links, node: int) -> int:
    """The next node towards the head, -1 at the head."""
    lists = int(links.lists[0])
    entry = int(links.backward[lists + node])
    return entry - lists if entry >= lists else -1
