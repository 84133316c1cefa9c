"""A share of a trace, drawn by unit with a seeded hash, in order (SHARDS with whole trees instead of single blocks)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from semantic_kv.sampling.units import sampling_units
from sembase.errors import ConfigurationError
from sembase.trace.columns import BlockTrace

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_STEPS: Final = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))


def sample_trace(trace: BlockTrace, rate: float, draw: int = 0) -> BlockTrace:
    """The requests of the sampled units. Simulate them in a cache of ``rate`` times the capacity."""
    if not 0.0 < rate <= 1.0:
        raise ConfigurationError(f"a sample rate of {rate:g} is not more than 0 and at most 1")
    keep = _hashed_share(sampling_units(trace), draw) < rate
    return take_requests(trace, np.flatnonzero(keep), f"{trace.name}@{rate:g}")


def take_requests(trace: BlockTrace, requests: npt.NDArray[np.int64], name: str) -> BlockTrace:
    """The named requests in their order, their nodes numbered anew as first seen."""
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
    """A parent is referred to by whoever refers to its child, so it is always among the kept."""
    new = np.full(node_count + 1, -1, dtype=np.int32)  # the last place answers for -1, the root's parent
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
