"""The cache that never forgets: every block after its first request is a hit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from semantic_kv.bound.result import Bound
from semantic_kv.cache.result import CacheModel
from sembase.compiled import kernel
from sembase.trace.columns import BlockTrace


def infinite(trace: BlockTrace, *, model: CacheModel = "prefix_tree") -> Bound:
    columns = trace.as_block_set() if model == "block_set" else trace
    hits, tokens = _known(columns.offsets, columns.nodes, columns.node_tokens)
    return Bound(
        name="infinite",
        standing="optimum",
        references=columns.reference_count,
        hit_blocks=int(hits.sum(dtype=np.int64)),
        prompt_tokens=int(columns.node_tokens[columns.nodes].sum(dtype=np.int64)),
        hit_tokens=int(tokens),
        per_request_hit_blocks=hits,
    )


@kernel
def _known(
    offsets: NDArray[np.int64], nodes: NDArray[np.int32], node_tokens: NDArray[np.int32]
) -> tuple[NDArray[np.int32], int]:
    met = np.full(len(node_tokens), -1, np.int32)
    hits = np.zeros(len(offsets) - 1, np.int32)
    tokens = 0
    for request in range(len(offsets) - 1):
        for at in range(offsets[request], offsets[request + 1]):
            node = nodes[at]
            if 0 <= met[node] < request:
                hits[request] += 1
                tokens += int(node_tokens[node])
            if met[node] < 0:
                met[node] = request
    return hits, tokens
