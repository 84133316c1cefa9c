"""Decision for decision with libcachesim where the semantics coincide: one block a request, equal sizes, no tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.simulator import block_device
from numpy.typing import NDArray
from scripts.data.folder import REAL_DATA

from semantic_kv.simulate import simulate
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace

libcachesim: Any = pytest.importorskip("libcachesim", reason="libcachesim is a development tool, not installed here")

CACHES = {
    "lru": libcachesim.LRU,
    "fifo": libcachesim.FIFO,
    "s3fifo": libcachesim.S3FIFO,
    "sieve": libcachesim.Sieve,
    "arc": libcachesim.ARC,
}
CLOUDPHYSICS = REAL_DATA / "cache" / "cloudphysics_io.csv.gz"


def one_block_requests(keys: NDArray[np.int64]) -> BlockTrace:
    interner = TreeInterner()
    rows = [interner.add(0, keys[at : at + 1], 1) for at in range(len(keys))]
    offsets = np.arange(len(keys) + 1, dtype=np.int64)
    return block_trace("keys", offsets, np.concatenate(rows), interner).as_block_set()


def their_hits(policy: str, trace: BlockTrace, capacity: int) -> list[bool]:
    cache = CACHES[policy](capacity, hashpower=16)
    request = libcachesim.Request()
    request.obj_size = 1
    hits = []
    for number, node in enumerate(trace.nodes.tolist()):
        request.obj_id = node + 1
        request.clock_time = number
        hits.append(bool(cache.get(request)))
    return hits


def our_hits(policy: str, trace: BlockTrace, capacity: int) -> list[bool]:
    run = simulate(trace, capacity=capacity, evict=policy, model="block_set")
    return [bool(hit) for hit in run.per_request_hit_blocks]


@pytest.mark.parametrize("policy", CACHES)
@pytest.mark.parametrize("capacity", [20, 57, 200])
def test_same_decisions_on_skewed_and_looping_references(policy: str, capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    skewed = rng.zipf(1.2, 6_000).clip(max=900)
    loop = np.tile(np.arange(1_000, 1_000 + capacity + 5), 12)
    trace = one_block_requests(np.concatenate([skewed, loop, skewed[::-1]]).astype(np.int64))
    ours = our_hits(policy, trace, capacity)
    assert ours == their_hits(policy, trace, capacity)
    assert 0 < sum(ours) < len(ours)


@pytest.mark.shared_data
@pytest.mark.skipif(not CLOUDPHYSICS.exists(), reason="the shared traces are not beside the repository")
@pytest.mark.parametrize("policy", CACHES)
def test_same_decisions_on_real_block_io(policy: str) -> None:
    trace = block_device.load(CLOUDPHYSICS).window(0, 30_000)
    assert our_hits(policy, trace, 1_000) == their_hits(policy, trace, 1_000)
