"""Time of one decision with a million announced blocks on 64 replicas: block keys, look-up and ``Placer.decide``."""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from benchmarks.targets import Spread
from semgate.index.blocks import BlockIndex
from semgate.index.keys import request_keys, root_key
from semgate.placement import PlacementRequest, Placer, ReplicaView

REPLICAS: Final = 64
BLOCK_TOKENS: Final = 16


def decision_times(blocks: int = 1_000_000, requests: int = 3_000) -> tuple[Spread, Spread, int]:
    """Microseconds of processor time and of wall clock, and the blocks indexed. Prompts of 4,096 tokens, a quarter to
    all of each announced by one replica."""
    rng = np.random.default_rng(1)
    prompt_tokens = 4_096
    root = root_key("model", None, None)
    index = BlockIndex()
    slots = [index.add_slot() for _ in range(REPLICAS)]
    per_prompt = prompt_tokens // BLOCK_TOKENS
    prompts = rng.integers(0, 50_000, size=(-(-blocks // per_prompt), prompt_tokens), dtype=np.uint32)
    for number, tokens in enumerate(prompts):
        hashes = np.arange(number * per_prompt + 1, (number + 1) * per_prompt + 1, dtype=np.uint64)
        index.stored(slots[number % REPLICAS], hashes, None, tokens, BLOCK_TOKENS, root)
    fleet = [
        ReplicaView(f"replica-{slot}", slot, "ready", int(rng.integers(20)), int(rng.integers(9_000))) for slot in slots
    ]
    placer = Placer("semantic_placement")
    donors = rng.integers(0, 2_000, size=REPLICAS, dtype=np.int32)
    cpu_us, wall_us = [], []
    for number in range(requests + 100):
        tokens = prompts[int(rng.integers(len(prompts)))].copy()
        tokens[int(rng.integers(per_prompt // 4, per_prompt)) * BLOCK_TOKENS :] += 1
        cpu_ns, wall_ns = time.thread_time_ns(), time.perf_counter_ns()
        keys = request_keys(tokens, BLOCK_TOKENS, root)
        held = index.longest(keys)
        placer.decide(PlacementRequest(prompt_tokens, BLOCK_TOKENS, keys, held, donor_tokens=donors), fleet)
        if number >= 100:  # the first ones compile
            cpu_us.append((time.thread_time_ns() - cpu_ns) / 1e3)
            wall_us.append((time.perf_counter_ns() - wall_ns) / 1e3)
    spread_cpu, spread_wall = Spread.of(cpu_us), Spread.of(wall_us)
    assert spread_cpu is not None
    assert spread_wall is not None
    return spread_cpu, spread_wall, index.distinct_blocks()
