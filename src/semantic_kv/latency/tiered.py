"""A block trace and tiers -> which tier served each block, and what moved between them.

Exclusive tiers, each LRU: a request's blocks end in the first tier; what that pushes out goes to the next, and from the
last it is gone. Costs 9 bytes per distinct block of the trace, resident or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semantic_kv.latency.tiers import Counts, Tier, check_tiers
from sembase.compiled import kernel, kernel_part
from sembase.errors import ContractError
from sembase.trace.columns import BlockTrace

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TieredReplay:
    """Counts of blocks. ``hit_blocks[r, t]``: what request ``r`` found in tier ``t``; the rest of it was computed.

    ``read``: blocks that left tier ``t`` for the first one because they were hit; ``demoted``: pushed out of ``t`` into
    the next tier, or, from the last, dropped; ``refused``: computed, but the request's own blocks left no room.
    """

    trace: str
    tiers: tuple[str, ...]
    references: int
    hit_blocks: Counts
    computed: int
    admitted: int
    refused: int
    read: tuple[int, ...]
    demoted: tuple[int, ...]
    resident: tuple[int, ...]

    @property
    def dropped(self) -> int:
        return self.demoted[-1]

    def hit_tokens(self, trace: BlockTrace) -> npt.NDArray[np.int64]:
        """Per request, from any tier: hits are a prefix, so the tokens of its first blocks."""
        blocks = self.hit_blocks.sum(axis=1)
        ends = np.concatenate(([0], np.cumsum(trace.node_tokens[trace.nodes], dtype=np.int64)))
        return np.asarray(ends[trace.offsets[:-1] + blocks] - ends[trace.offsets[:-1]], dtype=np.int64)

    def written_bytes(self, block_bytes: int) -> tuple[int, ...]:
        """Into each tier below the first."""
        return tuple(blocks * block_bytes for blocks in self.demoted[:-1])


def tiered_replay(trace: BlockTrace, tiers: Sequence[Tier]) -> TieredReplay:
    """Serve the requests in order; all blocks of one request are pinned while it is served.

    A parent is touched whenever its child is, and after it, so no tier ever pushes a block out before its children:
    plain LRU is leaf-only LRU here. Blocks of a request beyond the first tier's capacity are not admitted there; if a
    lower tier has them they are hits and stay.
    """
    check_tiers(tiers)
    if trace.parent is None:
        raise ContractError("tiers are replayed over a prefix tree; this trace has no parents")
    capacity = np.array([tier.capacity_blocks for tier in tiers], dtype=np.int64)
    hits = np.zeros((trace.request_count, len(tiers)), dtype=np.int32)
    moved = np.zeros((3, len(tiers)), dtype=np.int64)
    admitted, refused = _replay(trace.offsets, trace.nodes, trace.node_count, capacity, hits, moved)
    read, demoted, resident = moved
    return TieredReplay(
        trace=trace.name,
        tiers=tuple(tier.name for tier in tiers),
        references=trace.reference_count,
        hit_blocks=hits,
        computed=trace.reference_count - int(hits.sum()),
        admitted=int(admitted),
        refused=int(refused),
        read=tuple(int(count) for count in read),
        demoted=tuple(int(count) for count in demoted),
        resident=tuple(int(count) for count in resident),
    )


@kernel_part
def _unlink(node: int, tier: int, before: Ints, after: Ints, ends: Ints) -> None:
    left, right = before[node], after[node]
    if left >= 0:
        after[left] = right
    else:
        ends[0, tier] = right
    if right >= 0:
        before[right] = left
    else:
        ends[1, tier] = left


@kernel_part
def _push(node: int, tier: int, before: Ints, after: Ints, ends: Ints) -> None:
    """To the recent end."""
    head = ends[0, tier]
    before[node], after[node] = -1, head
    if head >= 0:
        before[head] = node
    else:
        ends[1, tier] = node
    ends[0, tier] = node


@kernel
def _replay(offsets: Longs, nodes: Ints, node_count: int, capacity: Longs, hits: Ints, moved: Longs) -> tuple[int, int]:
    """Fills ``hits`` and ``moved`` (read, demoted, resident by tier); returns blocks admitted and refused."""
    tiers = capacity.shape[0]
    tier_of = np.full(node_count, -1, dtype=np.int8)
    before, after = np.full(node_count, -1, dtype=np.int32), np.full(node_count, -1, dtype=np.int32)
    ends = np.full((2, tiers), -1, dtype=np.int32)  # most and least recent block of each tier
    admitted, refused = 0, 0
    for request in range(offsets.shape[0] - 1):
        begin, end = offsets[request], offsets[request + 1]
        place = begin
        while place < end and tier_of[nodes[place]] >= 0:
            hits[request, tier_of[nodes[place]]] += 1
            place += 1
        for back in range(end - begin):  # deepest first: the root ends as the most recent
            index = end - begin - 1 - back
            node = nodes[begin + index]
            tier = tier_of[node]
            goes_to = 0 if index < capacity[0] else tier
            if goes_to < 0:
                refused += 1
                continue
            if tier < 0:
                admitted += 1
            else:
                _unlink(node, tier, before, after, ends)
                moved[2, tier] -= 1
                moved[0, tier] += 1 if tier != goes_to else 0
            _push(node, goes_to, before, after, ends)
            tier_of[node] = goes_to
            moved[2, goes_to] += 1
        for tier in range(tiers):
            while moved[2, tier] > capacity[tier]:
                node = ends[1, tier]
                _unlink(node, tier, before, after, ends)
                moved[1, tier] += 1
                moved[2, tier] -= 1
                tier_of[node] = tier + 1 if tier + 1 < tiers else -1
                if tier + 1 < tiers:
                    _push(node, tier + 1, before, after, ends)
                    moved[2, tier + 1] += 1
    return admitted, refused
