"""Our index filled and asked in a process of its own: sizes in, one JSON line of figures out. Run by `__main__`.

Throughput is by processor time, which other work on the machine does not stretch; look-ups are by the wall clock.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.router.index.world import (
    BLOCK_TOKENS,
    EVENT_BLOCKS,
    WARM_UP_REQUESTS,
    World,
    resident_bytes,
)
from semgate.index.blocks import BlockIndex
from semgate.index.keys import request_keys, root_key

ROOT = root_key("model", None, None)


def main() -> int:
    blocks, replicas, requests = (int(word) for word in sys.argv[1:4])
    world = World(blocks, replicas, requests)
    _compile()
    index = BlockIndex(1 << 21)
    for _ in range(replicas):
        index.add_slot()
    before = resident_bytes()
    store_s, longest_stall_ms, events, held = _fill(index, world)
    filled = resident_bytes()
    figures = {
        "blocks": index.distinct_blocks(),
        "block_replica_pairs": held,
        "store_events_per_s": events / store_s,
        "store_blocks_per_s": held / store_s,
        "longest_store_call_ms": longest_stall_ms,
        "state_bytes": index.state_bytes(),
        "resident_bytes": filled - before,
        **_ask(index, world),
    }
    figures["remove_blocks_per_s"] = _remove(index, world)
    print(json.dumps(figures))
    return 0


def _compile() -> None:
    index = BlockIndex(1 << 21)
    small = World(70_000, 2, 1)
    index.add_slot()
    index.add_slot()
    _fill(index, small)
    _remove(index, small)
    index.longest(request_keys(small.tokens(0), BLOCK_TOKENS, ROOT))
    index.cleared(0)


def _fill(index: BlockIndex, world: World) -> tuple[float, float, int, int]:
    total = longest = 0.0
    events = held = 0
    for chain in world.stored():
        parent = None
        for begin in range(0, len(chain.hashes), EVENT_BLOCKS):
            hashes = chain.hashes[begin : begin + EVENT_BLOCKS]
            tokens = chain.tokens[begin * BLOCK_TOKENS : (begin + EVENT_BLOCKS) * BLOCK_TOKENS]
            started = time.process_time()
            index.stored(chain.replica, hashes, parent, tokens, BLOCK_TOKENS, ROOT)
            took = time.process_time() - started
            total += took
            longest = max(longest, took)
            parent = int(hashes[-1])
            events += 1
            held += len(hashes)
    return total, longest * 1000, events, held


def _ask(index: BlockIndex, world: World) -> dict[str, object]:
    hashing, looking, both, cpu, answers = [], [], [], [], []
    for shared, tokens in world.asked():
        used = time.process_time()
        started = time.perf_counter()
        keys = request_keys(tokens, BLOCK_TOKENS, ROOT)
        hashed = time.perf_counter()
        longest = index.longest(keys)
        ended = time.perf_counter()
        cpu.append((time.process_time() - used) * 1e6)
        hashing.append((hashed - started) * 1e6)
        looking.append((ended - hashed) * 1e6)
        both.append((ended - started) * 1e6)
        answers.append([shared, int(np.max(longest))])
    kept = slice(WARM_UP_REQUESTS, None)
    timed: dict[str, list[Any]] = {
        "hash_us": hashing,
        "look_up_us": looking,
        "both_us": both,
        "both_cpu_us": cpu,
        "answers": answers,
    }
    return {name: values[kept] for name, values in timed.items()}


def _remove(index: BlockIndex, world: World) -> float:
    total, gone = 0.0, 0
    for chain in world.stored():
        if gone > 200_000:
            break
        started = time.process_time()
        gone += index.removed(chain.replica, chain.hashes)
        total += time.process_time() - started
    return gone / total


if __name__ == "__main__":
    raise SystemExit(main())
