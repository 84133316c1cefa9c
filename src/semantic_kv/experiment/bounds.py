"""The two bounds of every table: the infinite cache, and the clairvoyant of the same size."""

from __future__ import annotations

import time

from semantic_kv.bound import clairvoyant, infinite
from semantic_kv.cache.result import Model, Unit
from semantic_kv.experiment.cells import BoundName
from semantic_kv.experiment.figures import BoundFigures
from sembase.latency import LatencyModel
from sembase.trace.columns import BlockTrace


def run_bound(
    name: BoundName, trace: BlockTrace, model: Model, unit: Unit, capacity: int, latency: LatencyModel
) -> BoundFigures:
    started = time.perf_counter()
    if name == "ceiling":
        found = infinite(trace, model=model)
    else:
        found = clairvoyant(trace, capacity=capacity, unit=unit, model=model)
    return BoundFigures(
        found.standing,
        trace.request_count,
        found.references,
        found.hit_blocks,
        found.prompt_tokens,
        found.hit_tokens,
        latency.ttft_sum_ms(trace.request_count, found.prompt_tokens - found.hit_tokens, found.hit_tokens, pairs=None),
        time.perf_counter() - started,
    )
