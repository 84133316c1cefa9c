"""Capacities worth looking at: evenly spread on a logarithmic scale up to where everything fits."""

from __future__ import annotations

import numpy as np

from semantic_kv.cache.result import Unit
from sembase.trace.columns import BlockTrace


def capacity_ladder(trace: BlockTrace, unit: Unit, steps: int = 12) -> tuple[int, ...]:
    """From a thousandth of the distinct blocks or tokens to all of them, round to two digits."""
    whole = int(trace.node_tokens.sum(dtype=np.int64)) if unit == "tokens" else trace.node_count
    sizes = np.geomspace(max(1.0, whole / 1_000), max(1.0, whole), steps)
    return tuple(sorted({max(1, int(float(f"{size:.2g}"))) for size in sizes}))
