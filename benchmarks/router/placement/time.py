"""Time of one decision with many announced blocks on 64 replicas: block keys, look-up and ``Placer.decide``."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import numpy as np

from benchmarks.targets import Spread
from semgate.index.blocks import BlockIndex
from semgate.index.keys import request_keys, root_key
from semgate.placement import PlacementRequest, Placer, ReplicaView

REPLICAS: Final = 64
BLOCK_TOKENS: Final = 16
PROMPT_TOKENS: Final = 4_096
PROMPT_BLOCKS: Final = PROMPT_TOKENS // BLOCK_TOKENS
WARM_UP: Final = 100  # the first ones compile


class Took(NamedTuple):
    cpu_us: float
    wall_us: float


class FullFleet:
    """Prompts of 4,096 tokens, each announced by one replica; requests that have a quarter to all of one."""

    def __init__(self, blocks: int) -> None:
        self._random = np.random.default_rng(1)
        self._root = root_key("model", None, None)
        self.index = BlockIndex()
        slots = [self.index.add_slot() for _ in range(REPLICAS)]
        size = (-(-blocks // PROMPT_BLOCKS), PROMPT_TOKENS)
        self._prompts = self._random.integers(0, 50_000, size=size, dtype=np.uint32)
        for number, tokens in enumerate(self._prompts):
            hashes = np.arange(number * PROMPT_BLOCKS + 1, (number + 1) * PROMPT_BLOCKS + 1, dtype=np.uint64)
            self.index.stored(slots[number % REPLICAS], hashes, None, tokens, BLOCK_TOKENS, self._root)
        queued = self._random.integers(9_000, size=REPLICAS)
        self._views = [ReplicaView(f"replica-{slot}", slot, "ready", slot % 20, int(queued[slot])) for slot in slots]
        self._donors = self._random.integers(0, 2_000, size=REPLICAS, dtype=np.int32)
        self._placer = Placer("semantic_placement")

    def decide(self) -> Took:
        tokens = self._prompts[int(self._random.integers(len(self._prompts)))].copy()
        tokens[int(self._random.integers(PROMPT_BLOCKS // 4, PROMPT_BLOCKS)) * BLOCK_TOKENS :] += 1
        cpu_ns, wall_ns = time.thread_time_ns(), time.perf_counter_ns()
        keys = request_keys(tokens, BLOCK_TOKENS, self._root)
        held = self.index.longest(keys)
        request = PlacementRequest(PROMPT_TOKENS, BLOCK_TOKENS, keys=keys, exact_blocks=held, donor_tokens=self._donors)
        self._placer.decide(request, self._views)
        return Took((time.thread_time_ns() - cpu_ns) / 1e3, (time.perf_counter_ns() - wall_ns) / 1e3)


def decision_times(blocks: int = 1_000_000, requests: int = 3_000) -> tuple[Spread, Spread, int]:
    """Microseconds of processor time and of wall clock, and the blocks indexed."""
    fleet = FullFleet(blocks)
    took = [fleet.decide() for _ in range(requests + WARM_UP)][WARM_UP:]
    spread_cpu, spread_wall = Spread.of([each.cpu_us for each in took]), Spread.of([each.wall_us for each in took])
    assert spread_cpu is not None
    assert spread_wall is not None
    return spread_cpu, spread_wall, fleet.index.distinct_blocks()
