"""The most hits any cache of this size can have: Belady with bypass over block references.

Between two requests at most `capacity` blocks stay; each block kept from one use to the next is one hit. Keeping those
used soonest is optimal (intervals on `capacity` machines). In a prefix tree every use of a block is one of its parent,
so a parent's next use is never later than its child's: dropping the farthest, deeper first among equals, never drops a
parent before its child, nor a block just hit before the new ones after it. So the optimum over block sets is reached
under the prefix rule, leaf-only eviction and pins. In a block set with pins it is a bound. With unequal blocks every
token counts as a block of its own: a bound on hit tokens only. A block-set request that names a block twice weighs it
double, which this rule ignores: then the figure is only what it attained.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from semantic_kv.bound.next_use import NEVER, next_uses
from semantic_kv.bound.result import Bound, BoundKind
from semantic_kv.cache.result import CacheModel, Unit
from semantic_kv.policy.structure.heap import Heap, drop, make_heap, put, smallest
from sembase.compiled import kernel
from sembase.trace.columns import BlockTrace


def clairvoyant(trace: BlockTrace, *, capacity: int, unit: Unit = "blocks", model: CacheModel = "prefix_tree") -> Bound:
    """4 bytes per reference and 32 bytes per node while it runs."""
    columns = trace.as_block_set() if model == "block_set" else trace
    by_tokens = unit == "tokens"
    sizes = columns.node_tokens if by_tokens else np.ones(columns.node_count, np.int32)
    coming = next_uses(columns.offsets, columns.nodes, columns.node_count)
    heap = make_heap(columns.node_count)
    kept = np.zeros(columns.node_count, np.int32)
    hits = np.zeros(columns.request_count, np.int32)
    hit_tokens, repeats = _keep_soonest(
        columns.offsets, columns.nodes, coming, sizes, columns.node_tokens, capacity, heap, kept, hits
    )
    standing: BoundKind = "bound" if by_tokens or model == "block_set" else "optimum"
    return Bound(
        name="clairvoyant",
        standing="attained" if repeats else standing,
        references=columns.reference_count,
        hit_blocks=None if by_tokens else int(hits.sum(dtype=np.int64)),
        prompt_tokens=int(columns.node_tokens[columns.nodes].sum(dtype=np.int64)),
        hit_tokens=int(hit_tokens),
        per_request_hit_blocks=None if by_tokens else hits,
    )


@kernel
def _keep_soonest(
    offsets: NDArray[np.int64],
    nodes: NDArray[np.int32],
    coming: NDArray[np.int32],
    sizes: NDArray[np.int32],
    node_tokens: NDArray[np.int32],
    capacity: int,
    heap: Heap,
    kept: NDArray[np.int32],
    hits: NDArray[np.int32],
) -> tuple[int, int]:
    """`kept` is how much of a block stays; the heap gives the block used last, deeper (younger id) first."""
    used = 0
    hit_tokens = 0
    repeats = 0
    for request in range(len(offsets) - 1):
        for at in range(offsets[request], offsets[request + 1]):
            node = int(nodes[at])
            if kept[node] > 0:
                hits[request] += 1
                hit_tokens += int(node_tokens[node]) * int(kept[node]) // int(sizes[node])
        for at in range(offsets[request], offsets[request + 1]):
            node = int(nodes[at])
            used -= int(kept[node])
            kept[node] = 0
            drop(heap, node)
        for at in range(offsets[request], offsets[request + 1]):
            node = int(nodes[at])
            if coming[at] == NEVER:
                continue
            if kept[node] > 0:
                repeats += 1
                continue
            kept[node] = sizes[node]
            used += int(sizes[node])
            put(heap, node, -float(coming[at]), -node)
        while used > capacity:
            farthest = smallest(heap)
            left = min(used - capacity, int(kept[farthest]))
            kept[farthest] -= left
            used -= left
            if kept[farthest] == 0:
                drop(heap, farthest)
    return hit_tokens, repeats
