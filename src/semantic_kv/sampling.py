"""Samples of a trace for miss-ratio curves: whole sessions or subtrees, drawn by a seeded hash (after SHARDS).

Sampling single blocks, as SHARDS does, would tear prefixes apart. The unit is a session if the trace has sessions, else
a subtree. If one root holds most of a trace (a shared system prompt), the unit is a subtree below it; the shared stem
then comes with every sampled request.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from semantic_kv.cache.result import Unit
from sembase.compiled import kernel
from sembase.errors import ConfigurationError
from sembase.trace.columns import BlockTrace

_LARGEST_SHARE: Final = 0.002  # of all references; a larger subtree is split into those of its children
Ints = npt.NDArray[np.int64]


def sampling_units(trace: BlockTrace) -> Ints:
    """A unit id per request; requests of one unit are sampled together."""
    if trace.session.size and trace.session.min() >= 0 and np.unique(trace.session).size > 1:
        return trace.session.astype(np.int64)
    if trace.parent is None:
        return np.arange(trace.request_count, dtype=np.int64)
    weight = np.bincount(trace.nodes, minlength=trace.node_count).astype(np.int64)
    limit = max(1, int(_LARGEST_SHARE * trace.nodes.size))
    unit = _subtree_units(np.asarray(trace.parent, dtype=np.int64), weight, limit)
    lengths = np.diff(trace.offsets)
    last = np.where(lengths > 0, trace.offsets[1:] - 1, 0)
    return np.asarray(np.where(lengths > 0, unit[trace.nodes[last]], -1))


@kernel
def _subtree_units(parent: Ints, weight: Ints, limit: int) -> Ints:
    """The topmost node above each node whose subtree holds at most ``limit`` references; a heavier node is its own.

    Parents come before children, so one pass upwards sums the subtrees and one downwards names the units.
    """
    nodes = parent.size
    total = weight.copy()
    for node in range(nodes - 1, -1, -1):
        if parent[node] >= 0:
            total[parent[node]] += total[node]
    unit = np.empty(nodes, np.int64)
    for node in range(nodes):
        above = parent[node]
        inherits = above >= 0 and total[above] <= limit
        unit[node] = unit[above] if inherits else node
    return unit


_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_STEPS: Final = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))


def sample_trace(trace: BlockTrace, rate: float, draw: int = 0) -> BlockTrace:
    """The requests of the sampled units. Simulate them in a cache of ``rate`` times the capacity."""
    if not 0.0 < rate <= 1.0:
        raise ConfigurationError(f"a sample rate of {rate:g} is not more than 0 and at most 1")
    keep = _hashed_share(sampling_units(trace), draw) < rate
    return take_requests(trace, np.flatnonzero(keep), f"{trace.name}@{rate:g}")


def take_requests(trace: BlockTrace, requests: npt.NDArray[np.int64], name: str) -> BlockTrace:
    """These requests in order, with nodes renumbered by first occurrence."""
    lengths = np.diff(trace.offsets)[requests]
    offsets = np.zeros(requests.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.repeat(trace.offsets[:-1][requests] - offsets[:-1], lengths) + np.arange(offsets[-1])
    referred = trace.nodes[places]
    kept, nodes = _in_order_of_sight(referred)
    return BlockTrace(
        name=name,
        block_tokens=trace.block_tokens,
        offsets=offsets,
        nodes=nodes,
        parent=None if trace.parent is None else _renumbered(trace.parent[kept], kept, trace.node_count),
        content=_in_order_of_sight(trace.content[kept])[1],
        node_tokens=trace.node_tokens[kept],
        node_label=trace.node_label[kept],
        arrival_ms=trace.arrival_ms[requests],
        session=trace.session[requests],
        tenant=trace.tenant[requests],
        output_tokens=trace.output_tokens[requests],
        finish=trace.finish[requests],
        observed_ttft_ms=trace.observed_ttft_ms[requests],
        observed_prefill_tokens=trace.observed_prefill_tokens[requests],
        observed_hit_tokens=trace.observed_hit_tokens[requests],
    )


def _in_order_of_sight(ids: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The different ids as they first appear, and every id as its place among them."""
    different, first, place = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    renamed = np.empty(different.size, dtype=np.int32)
    renamed[order] = np.arange(different.size, dtype=np.int32)
    return different[order], renamed[place.reshape(-1)]


def _renumbered(parents: npt.NDArray[np.int32], kept: npt.NDArray[np.int32], node_count: int) -> npt.NDArray[np.int32]:
    """Any request that refers to a child refers to its parent, so every parent is kept."""
    new = np.full(node_count + 1, -1, dtype=np.int32)  # the last entry stands for -1, the parent of a root
    new[kept] = np.arange(kept.size, dtype=np.int32)
    return new[parents]


def _hashed_share(units: npt.NDArray[np.int64], draw: int) -> npt.NDArray[np.float64]:
    """A number in [0, 1) per unit that looks random but is always the same (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = (units.astype(np.uint64) + np.uint64(1) + np.uint64(draw) * np.uint64(1 << 40)) * _GOLDEN
        for shift, factor in _STEPS:
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
        mixed ^= mixed >> np.uint64(31)
    return mixed.astype(np.float64) / 2.0**64


def capacity_ladder(trace: BlockTrace, unit: Unit, steps: int = 12) -> tuple[int, ...]:
    """From a thousandth of the distinct blocks or tokens to all of them, round to two digits."""
    whole = int(trace.node_tokens.sum(dtype=np.int64)) if unit == "tokens" else trace.node_count
    sizes = np.geomspace(max(1.0, whole / 1_000), max(1.0, whole), steps)
    return tuple(sorted({max(1, int(float(f"{size:.2g}"))) for size in sizes}))
