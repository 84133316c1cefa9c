"""What a sample of a prefix-tree trace is drawn from: sessions where the trace knows them, else subtrees.

Sampling single blocks, as SHARDS does, would tear prefixes apart. Where one root holds most of a trace (a system prompt
everybody shares) the unit is a subtree below it; the shared stem then comes along with every sampled request, whole.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from sembase.compiled import kernel
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
