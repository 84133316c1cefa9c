"""The arrays of the anchor index, and what their columns mean.

Everything is a flat array so that compiled code can walk it without the interpreter, a million donors cost no Python
objects, and memory can be stated: 4 bytes per token, 20 per posting, 8 per table place, 36 per context-trie node.

Arrays are reserved at the size the byte budget allows and committed by the operating system page by page as they are
written, so nothing is ever copied to grow, except one segment of the hash table at a time (see ``segments``).
"""

from __future__ import annotations

import mmap
import sys
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semblend.search import heads

PAGE_BITS: Final = 8
PAGE: Final = 1 << PAGE_BITS  # tokens per page of the arena
PAGE_BYTES: Final = PAGE * 4

# postings: one anchor of one donor. Id 0 is "none".
POST_DONOR, POST_POSITION, POST_NEXT, POST_PREV, POST_SIBLING = range(5)
POST_COLUMNS: Final = 5
POST_BYTES: Final = POST_COLUMNS * 4

# nodes of the context tries that replace a chain once too many donors share its gram. Id 0 is "none".
NODE_PARENT, NODE_TOKEN, NODE_DEPTH, NODE_HEAD, NODE_COUNT, NODE_CHILD, NODE_NEXT, NODE_PREV, NODE_LINK = range(9)
NODE_COLUMNS: Final = 9
NODE_BYTES: Final = NODE_COLUMNS * 4

# donors, by slot
DONOR_LENGTH, DONOR_NAMESPACE, DONOR_PAGES, DONOR_LIVE, DONOR_POSTS, DONOR_NEWER, DONOR_OLDER = range(7)
DONOR_HEADS: Final = 7  # the first of the hashes of how the donor begins (see ``heads``)
DONOR_COLUMNS: Final = DONOR_HEADS + heads.COUNT
DONOR_BYTES: Final = (
    DONOR_COLUMNS * 4 + 1 + 320
)  # row, use mark, and an estimate for the id string and its dictionary entry

# counters shared with compiled code
STATE_VERSION, STATE_TABLE_PLACES, STATE_POST_HIGH, STATE_POST_FREE, STATE_POST_USED = range(5)
STATE_NODE_HIGH, STATE_NODE_FREE, STATE_NODE_USED, STATE_NODE_RETIRED = range(5, 9)
STATE_PAGE_HIGH, STATE_PAGE_FREE, STATE_PAGE_USED, STATE_MAP_HIGH = range(9, 13)
STATE_CROWDED: Final = 13  # one more than the segment of the table that needs to grow, or 0
STATE_MAP_FREE: Final = 14  # one free list per power of two
STATE_SIZE: Final = STATE_MAP_FREE + 32

# segments of the hash table
SEGMENT_EXTENT, SEGMENT_USED, SEGMENT_GONE = range(3)  # offset << 32 | size; keys; keys without donors
SEGMENT_COLUMNS: Final = 3
MIN_SEGMENT: Final = 512  # places: one page of memory
_BUDGET_PER_SEGMENT: Final = 16 << 20
_MAX_SEGMENTS: Final = 1024
_NO_RESERVE: Final = 0x4000 if sys.platform == "linux" else 0  # named in the standard library only from 3.13 on


class Store(NamedTuple):
    """All arrays, as one value that compiled code can take."""

    table: NDArray[np.int64]
    segments: NDArray[np.int64]
    posts: NDArray[np.int32]
    nodes: NDArray[np.int32]
    donors: NDArray[np.int32]
    used: NDArray[np.uint8]
    arena: NDArray[np.uint32]
    page_map: NDArray[np.int32]
    free_pages: NDArray[np.int32]
    state: NDArray[np.int64]


def reserve(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """A zeroed array whose memory is committed only where it is touched."""
    count = int(np.prod(shape))
    return np.frombuffer(reserve_bytes(count * np.dtype(dtype).itemsize), dtype, count).reshape(shape)


def reserve_bytes(size: int) -> mmap.mmap:
    return mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)


def table_bytes(budget_bytes: int) -> int:
    """Address space for the table. Twice the budget is enough, because other segments reuse outgrown extents."""
    return 2 * budget_bytes + segment_count(budget_bytes) * MIN_SEGMENT * 8


def segment_count(budget_bytes: int) -> int:
    """A power of two, so that a segment stays small enough to be rebuilt in a few milliseconds."""
    count = 1
    while count < _MAX_SEGMENTS and count * _BUDGET_PER_SEGMENT < budget_bytes:
        count *= 2
    return count


def allocate(budget_bytes: int, table: NDArray[np.int64]) -> Store:
    pages = budget_bytes // PAGE_BYTES + 2
    donors = budget_bytes // DONOR_BYTES + 2
    return Store(
        table=table,
        segments=np.zeros((segment_count(budget_bytes), SEGMENT_COLUMNS), np.int64),
        posts=reserve((min(budget_bytes // POST_BYTES + 2, 1 << 29), POST_COLUMNS), np.int32),
        nodes=reserve((min(budget_bytes // NODE_BYTES + 2, 1 << 29), NODE_COLUMNS), np.int32),
        donors=reserve((donors, DONOR_COLUMNS), np.int32),
        used=reserve((donors,), np.uint8),
        arena=reserve((pages * PAGE,), np.uint32),
        # One free list per power of two, never merged: as lengths drift, each may once have held every page.
        page_map=reserve((2 * pages * (pages.bit_length() + 1) + 64,), np.int32),
        free_pages=reserve((pages,), np.int32),
        state=np.zeros(STATE_SIZE, np.int64),
    )


def accounted_bytes(store: Store, donors: int) -> int:
    """Bytes held, including memory that readers still prevent from being reused."""
    state: list[int] = store.state[:STATE_MAP_FREE].tolist()
    return (
        state[STATE_PAGE_USED] * PAGE_BYTES
        + state[STATE_MAP_HIGH] * 4
        + state[STATE_POST_USED] * POST_BYTES
        + state[STATE_NODE_USED] * NODE_BYTES
        + state[STATE_TABLE_PLACES] * 8
        + donors * DONOR_BYTES
    )
