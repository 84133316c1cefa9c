"""Dynamo's ``RadixTree`` (Rust) on the same chains and requests; run by ``index`` with Dynamo's own interpreter.

Events are prepared before the clock runs, and requests are given as the lists that its functions take. Throughput is by
processor time of all its threads, look-ups by the wall clock.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from benchmarks.router.index.world import (
    BLOCK_TOKENS,
    EVENT_BLOCKS,
    WARM_UP_REQUESTS,
    Chain,
    World,
    resident_bytes,
)


def main() -> int:
    from dynamo.llm import (  # type: ignore[import-not-found]  # in its own environment
        RadixTree,
        compute_block_hash_for_seq,
    )

    blocks, replicas, requests = (int(word) for word in sys.argv[1:4])
    world = World(blocks, replicas, requests)
    tree: Any = RadixTree()
    before = resident_bytes()
    store_s, longest_ms, events, held = 0.0, 0.0, 0, 0
    for chain in world.stored():
        token_hashes = compute_block_hash_for_seq(chain.tokens.tolist(), BLOCK_TOKENS)
        for payload in _events(chain, token_hashes, events):
            started = time.process_time()
            tree.apply_event(chain.replica, payload)
            took = time.process_time() - started
            store_s += took
            longest_ms = max(longest_ms, took * 1000)
            events += 1
        held += len(token_hashes)
    started = time.process_time()
    tree.find_matches([1])  # its thread has applied everything when this comes back
    store_s += time.process_time() - started
    figures = {
        "blocks": world.chains * 256,
        "block_replica_pairs": held,
        "store_events_per_s": events / store_s,
        "store_blocks_per_s": held / store_s,
        "longest_store_call_ms": longest_ms,
        "resident_bytes": resident_bytes() - before,
    }
    hashing, looking, both, cpu, answers = [], [], [], [], []
    for shared, tokens in world.asked():
        plain = tokens.tolist()
        used = time.process_time()
        started = time.perf_counter()
        keys = compute_block_hash_for_seq(plain, BLOCK_TOKENS)
        hashed = time.perf_counter()
        scores = tree.find_matches(keys).scores
        ended = time.perf_counter()
        cpu.append((time.process_time() - used) * 1e6)
        hashing.append((hashed - started) * 1e6)
        looking.append((ended - hashed) * 1e6)
        both.append((ended - started) * 1e6)
        answers.append([shared, max(scores.values(), default=0)])
    kept = slice(WARM_UP_REQUESTS, None)
    timed: dict[str, list[Any]] = {
        "hash_us": hashing,
        "look_up_us": looking,
        "both_us": both,
        "both_cpu_us": cpu,
        "answers": answers,
    }
    print(json.dumps({**figures, **{name: values[kept] for name, values in timed.items()}}))
    return 0


def _events(chain: Chain, token_hashes: list[int], first_id: int) -> list[bytes]:
    payloads = []
    engine = chain.hashes.tolist()
    for begin in range(0, len(engine), EVENT_BLOCKS):
        blocks = [{"block_hash": engine[i], "tokens_hash": token_hashes[i]} for i in range(begin, begin + EVENT_BLOCKS)]
        stored = {"parent_hash": engine[begin - 1] if begin else None, "blocks": blocks}
        event = {"event_id": first_id + begin // EVENT_BLOCKS, "data": {"stored": stored}}
        payloads.append(json.dumps(event).encode())
    return payloads


if __name__ == "__main__":
    raise SystemExit(main())
