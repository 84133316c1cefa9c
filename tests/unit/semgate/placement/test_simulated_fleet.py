"""The simulated fleet of the placement benchmark against a plain one, and its bound against its policies."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from benchmarks.router.placement.fleet import REPLICAS, longest, new_caches, store
from benchmarks.router.placement.load import synthetic
from benchmarks.router.placement.replay import PRICE, bound, replay, sighted


def test_caches_equal_plain_ones_that_evict_children_first() -> None:
    rng = np.random.default_rng(7)
    capacity, distinct = 6, 60
    caches = new_caches(distinct, capacity)
    plain: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(REPLICAS)]
    held = np.zeros(REPLICAS, dtype=np.int32)
    for _ in range(3_000):
        tree = int(rng.integers(0, 6))
        blocks = np.arange(tree * 10, tree * 10 + rng.integers(1, 6), dtype=np.int32)
        longest(caches, blocks, held)
        for replica in range(0, REPLICAS, 9):
            leading = 0
            while leading < blocks.size and int(blocks[leading]) in plain[replica]:
                leading += 1
            assert held[replica] == leading
        replica = int(rng.integers(0, 8)) * 9 % REPLICAS
        store(caches, replica, blocks, np.zeros_like(blocks), False)
        for block in reversed(blocks.tolist()):
            if block not in plain[replica] and len(plain[replica]) == capacity:
                plain[replica].popitem(last=False)
            plain[replica][block] = None
            plain[replica].move_to_end(block)


def test_nothing_beats_the_bound_and_precise_prefix_beats_round_robin() -> None:
    load = synthetic(3_000, local=True, ms_per_token=PRICE.ms_per_token, replicas=REPLICAS, offered=1.2)
    limit = bound(load)
    results = [replay(load, policy, 200) for policy in ("round_robin", "precise_prefix")]
    results += [sighted(load, 200, knows_future=True)]
    for each in results:
        assert each.cached_tokens <= limit.cached_tokens
        assert each.ttft_mean_ms >= limit.ttft_mean_ms
    assert results[1].ttft_mean_ms < results[0].ttft_mean_ms
