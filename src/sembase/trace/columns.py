"""A trace as columns: what loaders and generators produce and what the simulator reads.

Costs 13 bytes per node, 4 bytes per block reference and 56 bytes per request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel
from sembase.errors import ContractError
from sembase.trace.intern import TreeInterner

__all__ = ["PER_NODE", "PER_REQUEST", "BlockTrace", "TreeInterner", "block_trace", "unknown_value"]

PER_REQUEST: Final[Mapping[str, Any]] = {
    "arrival_ms": np.float64,
    "session": np.int32,
    "tenant": np.int32,
    "output_tokens": np.int32,
    "finish": np.int32,
    "observed_ttft_ms": np.float64,
    "observed_prefill_tokens": np.float64,
    "observed_hit_tokens": np.float64,
}
PER_NODE: Final[Mapping[str, Any]] = {"content": np.int32, "node_tokens": np.int32, "node_label": np.uint8}
_REFERENCES_PER_CHUNK: Final = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class BlockTrace:
    """Requests as rows of node ids.

    In a prefix tree a node is one block of one tenant after one exact prefix; in a block set (`parent` is None) it is
    one content of one tenant. Unknown values are -1 for integers and nan for observed figures.
    """

    name: str
    block_tokens: int | None  # None if block sizes differ
    offsets: NDArray[np.int64]  # request r refers to nodes[offsets[r]:offsets[r + 1]], first block first
    nodes: NDArray[np.int32]  # dense, numbered by first occurrence
    parent: NDArray[np.int32] | None  # -1 for a root
    content: NDArray[np.int32]  # equal for equal content of one tenant, whatever the prefix
    node_tokens: NDArray[np.int32]
    node_label: NDArray[np.uint8]
    arrival_ms: NDArray[np.float64]
    session: NDArray[np.int32]
    tenant: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    finish: NDArray[np.int32]  # how the answer ended: index into `sembase.finish.FINISH_REASONS`
    observed_ttft_ms: NDArray[np.float64]
    observed_prefill_tokens: NDArray[np.float64]
    observed_hit_tokens: NDArray[np.float64]

    def __post_init__(self) -> None:
        expected = {
            "offsets": (np.int64, self.request_count + 1),
            "nodes": (np.int32, self.reference_count),
            **{name: (dtype, self.node_count) for name, dtype in PER_NODE.items()},
            **{name: (dtype, self.request_count) for name, dtype in PER_REQUEST.items()},
        }
        if self.parent is not None:
            expected["parent"] = (np.int32, self.node_count)
        for name, (dtype, length) in expected.items():
            column = getattr(self, name)
            if column.dtype != dtype or column.shape != (length,):
                raise ContractError(
                    f"trace '{self.name}': column {name} is {column.dtype}{list(column.shape)}, "
                    f"expected {np.dtype(dtype)}[{length}]"
                )

    @property
    def request_count(self) -> int:
        return len(self.offsets) - 1

    @property
    def reference_count(self) -> int:
        return int(self.offsets[-1] - self.offsets[0])

    @property
    def node_count(self) -> int:
        return len(self.content)

    @property
    def is_tree(self) -> bool:
        return self.parent is not None

    def check(self) -> None:
        """Raise unless every reference is in range and, in a tree, every block follows its parent. O(references)."""
        parent = np.empty(0, np.int32) if self.parent is None else self.parent
        fault = _first_fault(self.offsets, self.nodes, parent, self.node_count)
        if fault >= 0:
            rule = "a node in range" if self.parent is None else "the child of the block before it"
            raise ContractError(f"trace '{self.name}': block of request {fault} is not {rule}")

    def as_block_set(self) -> BlockTrace:
        """The same requests with blocks identified by content alone, at any position."""
        if self.parent is None:
            return self
        count = int(self.content.max()) + 1 if self.node_count else 0
        first = np.zeros(count, dtype=np.int64)
        first[self.content[::-1]] = np.arange(self.node_count - 1, -1, -1)  # the earliest node with this content
        return replace(
            self,
            nodes=self.content[self.nodes],
            parent=None,
            content=np.arange(count, dtype=np.int32),
            node_tokens=self.node_tokens[first],
            node_label=self.node_label[first],
        )

    def flattened(self) -> BlockTrace:
        """A block set with one request per reference, as page and object caches see it; for parity tests."""
        blocks = self.as_block_set()
        owner = np.repeat(np.arange(self.request_count), np.diff(self.offsets))
        columns = {name: getattr(blocks, name)[owner] for name in PER_REQUEST}
        return replace(blocks, offsets=np.arange(self.reference_count + 1, dtype=np.int64), **columns)

    def window(self, start: int, stop: int) -> BlockTrace:
        """Requests start to stop - 1 with all node columns, so node ids keep their meaning."""
        start, stop, _ = slice(start, stop).indices(self.request_count)
        offsets = self.offsets[start : max(start, stop) + 1]
        columns = {name: getattr(self, name)[start : max(start, stop)] for name in PER_REQUEST}
        return replace(self, offsets=offsets - offsets[0], nodes=self.nodes[offsets[0] : offsets[-1]], **columns)

    def prompt_tokens(self) -> NDArray[np.int64]:
        """Per request. Summed in chunks: one running sum over 10^8 references would take a gigabyte."""
        found = np.zeros(self.request_count, np.int64)
        start = 0
        while start < self.request_count:
            reach = self.offsets[start] + _REFERENCES_PER_CHUNK
            stop = max(start + 1, int(np.searchsorted(self.offsets, reach, side="right")) - 1)
            edges = self.offsets[start : stop + 1]
            sums = np.cumsum(self.node_tokens[self.nodes[edges[0] : edges[-1]]], dtype=np.int64)
            running = np.concatenate([np.zeros(1, np.int64), sums])
            found[start:stop] = np.diff(running[edges - edges[0]])
            start = stop
        return found

    def memory_bytes(self) -> int:
        columns = (getattr(self, field.name) for field in fields(self))
        return sum(column.nbytes for column in columns if isinstance(column, np.ndarray))


@kernel
def _first_fault(
    offsets: NDArray[np.int64], nodes: NDArray[np.int32], parent: NDArray[np.int32], node_count: int
) -> int:
    for request in range(len(offsets) - 1):
        above = -1
        for position in range(offsets[request], offsets[request + 1]):
            node = nodes[position]
            if node < 0 or node >= node_count:
                return request
            if len(parent) and parent[node] != above:
                return request
            above = node
    return -1


def block_trace(
    name: str,
    offsets: NDArray[np.int64],
    nodes: NDArray[np.int32],
    interner: TreeInterner,
    *,
    block_tokens: int | None = None,
    **per_request: NDArray[np.generic],
) -> BlockTrace:
    """A tree trace from an interner and the known request columns; the others are filled with unknown values."""
    unknown = sorted(set(per_request) - set(PER_REQUEST))
    if unknown:
        raise ContractError(f"trace '{name}': unknown request columns {', '.join(unknown)}")
    requests = len(offsets) - 1
    columns = {}
    for column, dtype in PER_REQUEST.items():
        given = per_request.get(column)
        columns[column] = np.full(requests, unknown_value(column), dtype) if given is None else given.astype(dtype)
    return BlockTrace(
        name=name,
        block_tokens=block_tokens,
        offsets=offsets,
        nodes=nodes,
        parent=interner.parent,
        content=interner.content,
        node_tokens=interner.node_tokens,
        node_label=interner.node_label,
        **columns,
    )


def unknown_value(column: str) -> float:
    """What a request column holds where nothing is known."""
    if column == "arrival_ms":
        return 0.0
    return float("nan") if PER_REQUEST[column] is np.float64 else -1
