"""Simulate one trace through one cache: compiled if both policies are, in plain Python on request."""

from __future__ import annotations

from collections.abc import Callable

from semantic_kv.cache.reference import ReferenceReplay
from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.result import CacheModel, Replay, Unit
from semantic_kv.cache.spec import Options, cache_spec
from semantic_kv.policy.registry import AdmissionTarget, EvictionTarget
from semantic_kv.policy.reuse import Reuse
from sembase.trace.columns import BlockTrace


def simulate(
    trace: BlockTrace,
    *,
    capacity: int,
    admit: str | AdmissionTarget = "always",
    evict: str | EvictionTarget = "lru",
    model: CacheModel = "prefix_tree",
    unit: Unit = "blocks",
    options: Options | None = None,
    seed: int = 0,
    reuse: Reuse | None = None,
    reference: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Replay:
    """Serve the requests in order. `admit` and `evict` are names, or policies of your own (`examples/extending`).

    `options` are those of the policies, as {"admit": {...}, "evict": {...}}.
    ``reuse`` is what requests may reuse beyond their prefix (`policy.reuse`); by default nothing.
    A policy without compiled hooks runs in the plain-Python simulator, as do reuse beyond the prefix and `reference`.
    """
    spec = cache_spec(
        capacity=capacity, admit=admit, evict=evict, model=model, unit=unit, options=options, seed=seed, reuse=reuse
    )
    if reference or spec.evict.hooks is None or spec.admit.hooks is None or spec.reuse.is_beyond_prefix:
        return ReferenceReplay(spec, trace).run(progress)
    replay = CompiledReplay(spec)
    replay.feed(trace, progress)
    return replay.result()
