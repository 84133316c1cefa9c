"""A load through the real ``Placer`` over modelled replicas, and the same load placed by who sees more than it can."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.router.placement.fleet import REPLICAS, clairvoyant, new_caches, store_then_look, unlimited
from benchmarks.router.placement.load import Load
from benchmarks.router.placement.queues import Clock, Queues
from semgate.placement import Observed, PlacementRequest, Placer, PolicyOptions, Price

PRICE: Final = Price(base_ms=80.0, ms_per_token=0.08)
MS_PER_OUTPUT_TOKEN: Final = 12.0
# splitmix64's odd constant: ids become keys that differ in every bit
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Result:
    load: str
    policy: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    ttft_mean_ms: float
    ttft_p50_ms: float
    ttft_p90_ms: float
    busiest: float | None = None
    decide_p50_us: float | None = None
    decide_p99_us: float | None = None
    decide_p99_wall_us: float | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    placer_mb: float | None = None

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    def row(self, round_robin: Result | None) -> tuple[object, ...]:
        return (
            self.policy,
            f"{self.hit_rate:.4f}",
            f"{self.ttft_mean_ms:,.0f}",
            None if round_robin is None else f"{round_robin.ttft_mean_ms / self.ttft_mean_ms:.2f}x",
            f"{self.ttft_p50_ms:,.0f}",
            f"{self.ttft_p90_ms:,.0f}",
            None if self.busiest is None else f"{self.busiest:.2f}",
            None if self.cpu_seconds is None else f"{self.requests / self.cpu_seconds:,.0f}",
            None if self.decide_p50_us is None else f"{self.decide_p50_us:.0f}",
            None if self.decide_p99_us is None else f"{self.decide_p99_us:.0f}",
            None if self.decide_p99_wall_us is None else f"{self.decide_p99_wall_us:.0f}",
            None if self.placer_mb is None else f"{self.placer_mb:.1f}",
        )


def replay(load: Load, policy: str, capacity: int) -> Result:
    """Every request through ``Placer.decide``; what the engine would do, simulated; ``Placer.observe`` after it."""
    clock, queues = Clock(), Queues()
    caches = new_caches(int(load.blocks.max()) + 1, capacity)
    held, nothing = np.zeros(REPLICAS, dtype=np.int32), np.zeros(0, dtype=np.int32)
    begun_bytes = _resident_bytes()
    options = PolicyOptions(leading_blocks=1)
    placer = Placer(policy, options=options, price=PRICE, clock_s=clock)
    slot_of = {name: slot for slot, name in enumerate(queues.names)}
    count = load.requests
    ttft_ms, cached = np.zeros(count), np.zeros(count, dtype=np.int64)
    decide_us, decide_wall_us = np.zeros(count, dtype=np.float32), np.zeros(count, dtype=np.float32)
    slot, before, before_next_use = 0, nothing, nothing
    store_then_look(caches, slot, nothing, nothing, nothing, held)  # compiled before the clock runs
    went = np.zeros(REPLICAS, dtype=np.int64)
    began_cpu, began_wall = time.process_time(), time.perf_counter()
    for number in range(count):
        now_ms, prompt = float(load.arrival_ms[number]), int(load.prompt_tokens[number])
        begin, end = load.starts[number], load.starts[number + 1]
        mine = load.blocks[begin:end]
        clock.now_ms = now_ms
        queues.advance(now_ms)
        store_then_look(caches, slot, before, before_next_use, mine, held)
        keys = mine.astype(np.uint64) * _SPREAD
        request = PlacementRequest(prompt, load.block_tokens, keys=keys, exact_blocks=held)
        began_ns = time.thread_time_ns()
        decision = placer.decide(request, queues.views)
        decide_us[number] = (time.thread_time_ns() - began_ns) / 1e3
        slot = slot_of[decision.replica]
        found = min(int(held[slot]) * load.block_tokens, prompt - 1)
        view = queues.views[slot]
        work_ms = (prompt - found) * PRICE.ms_per_token
        decode_ms = int(load.output_tokens[number]) * MS_PER_OUTPUT_TOKEN
        wait_ms = queues.join(slot, now_ms, prompt - decision.expected_tokens, work_ms, decode_ms)
        before, before_next_use = mine, load.next_use[begin:end]
        ttft_ms[number], cached[number] = PRICE.base_ms + wait_ms + work_ms, found
        decide_wall_us[number] = decision.decide_us
        went[slot] += prompt - found
        age_ms = now_ms - view.head_since_s * 1e3
        placer.observe(
            Observed(
                prompt,
                view.queued_prefill_tokens,
                found,
                ttft_ms[number],
                head_tokens=view.head_prefill_tokens,
                head_age_ms=age_ms,
            )
        )
    return _result(
        load,
        policy,
        ttft_ms,
        cached,
        busiest=float(went.max() / went.mean()),
        decide_p50_us=float(np.median(decide_us)),
        decide_p99_us=float(np.quantile(decide_us, 0.99)),
        decide_p99_wall_us=float(np.quantile(decide_wall_us, 0.99)),
        cpu_seconds=time.process_time() - began_cpu,
        wall_seconds=time.perf_counter() - began_wall,
        placer_mb=max(_resident_bytes() - begun_bytes - 3 * ttft_ms.nbytes, 0) / 1e6,
    )


def sighted(load: Load, capacity: int, *, knows_future: bool) -> Result:
    caches = new_caches(int(load.blocks.max()) + 1, capacity)
    ttft_ms, cached = clairvoyant(
        caches,
        load.arrival_ms,
        load.prompt_tokens,
        load.starts,
        load.blocks,
        load.next_use,
        load.block_tokens,
        PRICE.ms_per_token,
        knows_future,
    )
    return _result(
        load, "clairvoyant greedy" if knows_future else "greedy, true state", ttft_ms + PRICE.base_ms, cached
    )


def bound(load: Load) -> Result:
    cached = unlimited(load.prompt_tokens, load.starts, load.blocks, int(load.blocks.max()) + 1, load.block_tokens)
    ttft_ms = (load.prompt_tokens - cached).astype(np.float64) * PRICE.ms_per_token + PRICE.base_ms
    return _result(load, "bound (no queues, no evictions)", ttft_ms, cached)


def _result(load: Load, policy: str, ttft_ms: NDArray[np.float64], cached: NDArray[np.int64], **more: Any) -> Result:
    tokens = int(load.prompt_tokens.sum())
    mean, middle, high = float(ttft_ms.mean()), float(np.median(ttft_ms)), float(np.quantile(ttft_ms, 0.9))
    return Result(load.name, policy, load.requests, tokens, int(cached.sum()), mean, middle, high, **more)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize()
