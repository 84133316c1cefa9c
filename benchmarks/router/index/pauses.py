"""The longest single calls of the index at 16 replicas of 2^20 blocks each, all different: what holds up an event loop.

Run ``python -m benchmarks.router.index.pauses``. Tables grow from nothing, every replica is cleared, and history of the
same size expires. Processor time of the thread and the wall clock, side by side. About 2 GB and a minute of one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from benchmarks.console import show_table
from benchmarks.router.index.world import BLOCK_TOKENS, EVENT_BLOCKS, VOCABULARY
from semgate.index.approximate import ApproximateIndex
from semgate.index.blocks import BlockIndex
from semgate.index.keys import root_key
from semgate.router.operations.warm_up import warm_up
from semgate.router.state.known_blocks import TIDY_BLOCKS

ROOT_KEY = root_key("model", None, None)
REQUEST_BLOCKS = 256


class Longest:
    """The longest calls of one kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.cpu_ms = 0.0
        self.wall_ms = 0.0
        self.cpu_total_s = 0.0

    def time(self, call: Callable[[], object]) -> object:
        cpu_s, wall_s = time.thread_time(), time.perf_counter()
        answer = call()
        wall_s, cpu_s = time.perf_counter() - wall_s, time.thread_time() - cpu_s
        self.calls += 1
        self.cpu_total_s += cpu_s
        self.cpu_ms = max(self.cpu_ms, cpu_s * 1e3)
        self.wall_ms = max(self.wall_ms, wall_s * 1e3)
        return answer

    def row(self) -> tuple[str, str, str, str, str]:
        mean_us = self.cpu_total_s / max(self.calls, 1) * 1e6
        return self.name, f"{self.calls:,}", f"{mean_us:.0f}", f"{self.cpu_ms:.1f}", f"{self.wall_ms:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.router.index.pauses", description=__doc__)
    parser.add_argument("--replicas", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=1 << 20, help="per replica (default: 2^20)")
    arguments = parser.parse_args()
    warm_up()
    rows = [
        *_announced(arguments.replicas, arguments.blocks),
        *_believed(arguments.replicas, arguments.blocks),
    ]
    title = f"{arguments.replicas} replicas of {arguments.blocks:,} blocks"
    show_table(
        title, ("call", "calls", "mean CPU us", "longest CPU ms", "longest wall ms"), [each.row() for each in rows]
    )
    return 0


def _announced(replicas: int, blocks: int) -> list[Longest]:
    index = BlockIndex(blocks)
    store, clear, tidy = Longest("stored, 64 blocks"), Longest("cleared"), Longest(f"tidy({TIDY_BLOCKS}) after clears")
    slots = [index.add_slot() for _ in range(replicas)]
    random = np.random.default_rng(1)
    for begin in range(0, blocks, EVENT_BLOCKS):
        hashes = np.arange(begin, begin + EVENT_BLOCKS, dtype=np.uint64)
        for slot in slots:
            tokens = random.integers(0, VOCABULARY, EVENT_BLOCKS * BLOCK_TOKENS, np.uint32)
            store.time(lambda s=slot, h=hashes, t=tokens: index.stored(s, h, None, t, BLOCK_TOKENS, ROOT_KEY))  # type: ignore[misc]
    for slot in slots:
        clear.time(lambda s=slot: index.cleared(s))  # type: ignore[misc]
    while tidy.time(lambda: index.tidy(TIDY_BLOCKS)):
        pass
    return [store, clear, tidy]


def _believed(replicas: int, blocks: int) -> list[Longest]:
    now_s = 0.0
    index = ApproximateIndex(blocks, 5.0, clock=lambda: now_s)
    route, look, tidy = Longest("routed, 256 blocks"), Longest("look-up as all expires"), Longest("tidy as all expires")
    slots = [index.add_slot() for _ in range(replicas)]
    random = np.random.default_rng(2)
    for _ in range(0, blocks, REQUEST_BLOCKS):
        for slot in slots:
            keys = random.integers(1, 1 << 63, REQUEST_BLOCKS, np.int64).astype(np.uint64)
            route.time(lambda s=slot, k=keys: index.routed(s, k))  # type: ignore[misc]
    now_s = 100.0
    for _ in range(100):
        look.time(lambda: index.longest(keys))
    while tidy.time(lambda: index.tidy(TIDY_BLOCKS)):
        pass
    return [route, look, tidy]


if __name__ == "__main__":
    raise SystemExit(main())
