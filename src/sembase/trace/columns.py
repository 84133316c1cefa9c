"""A trace as columns: what every loader and generator makes and every simulator run reads.

13 bytes a node, 4 bytes a block reference, 52 bytes a request.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel
from sembase.errors import ContractError
from sembase.trace.intern import TreeInterner

__all__ = ["BlockTrace", "TreeInterner", "block_trace"]

_PER_REQUEST = {
    "arrival_ms": np.float64,
    "session": np.int32,
    "tenant": np.int32,
    "output_tokens": np.int32,
    "observed_ttft_ms": np.float64,
    "observed_prefill_tokens": np.float64,
    "observed_hit_tokens": np.float64,
}
_PER_NODE = {"content": np.int32, "node_tokens": np.int32, "node_label": np.uint8}


@dataclass(frozen=True, slots=True, eq=False)
class BlockTrace:
    """Requests as rows of node ids.

    A node is one block of one tenant behind one exact prefix (tree) or one content of one tenant (block set, where
    `parent` is None). Unknown: -1 for integers, nan for observed figures.
    """

    name: str
    block_tokens: int | None  # None where blocks differ
    offsets: NDArray[np.int64]  # request r refers to nodes[offsets[r]:offsets[r + 1]], first block first
    nodes: NDArray[np.int32]  # dense, in order of first sight
    parent: NDArray[np.int32] | None  # -1 at a root
    content: NDArray[np.int32]  # equal content of one tenant behind different prefixes shares it
    node_tokens: NDArray[np.int32]
    node_label: NDArray[np.uint8]
    arrival_ms: NDArray[np.float64]
    session: NDArray[np.int32]
    tenant: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    observed_ttft_ms: NDArray[np.float64]
    observed_prefill_tokens: NDArray[np.float64]
    observed_hit_tokens: NDArray[np.float64]

    def __post_init__(self) -> None:
        expected = {
            "offsets": (np.int64, self.request_count + 1),
            "nodes": (np.int32, self.reference_count),
            **{name: (dtype, self.node_count) for name, dtype in _PER_NODE.items()},
            **{name: (dtype, self.request_count) for name, dtype in _PER_REQUEST.items()},
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
        """Every reference in range and, in a tree, every block right behind its parent; O(references)."""
        parent = np.empty(0, np.int32) if self.parent is None else self.parent
        fault = _first_fault(self.offsets, self.nodes, parent, self.node_count)
        if fault >= 0:
            rule = "a node in range" if self.parent is None else "the child of the block before it"
            raise ContractError(f"trace '{self.name}': request {fault} holds a block that is not {rule}")

    def as_block_set(self) -> BlockTrace:
        """The same requests where a block is its content alone, wherever it stands."""
        if self.parent is None:
            return self
        count = int(self.content.max()) + 1 if self.node_count else 0
        first = np.zeros(count, dtype=np.int64)
        first[self.content[::-1]] = np.arange(self.node_count - 1, -1, -1)  # the earliest node of a content wins
        return replace(
            self,
            nodes=self.content[self.nodes],
            parent=None,
            content=np.arange(count, dtype=np.int32),
            node_tokens=self.node_tokens[first],
            node_label=self.node_label[first],
        )

    def flattened(self) -> BlockTrace:
        """Block set with one request per reference: the model of page and object caches, for parity with theirs."""
        blocks = self.as_block_set()
        owner = np.repeat(np.arange(self.request_count), np.diff(self.offsets))
        columns = {name: getattr(blocks, name)[owner] for name in _PER_REQUEST}
        return replace(blocks, offsets=np.arange(self.reference_count + 1, dtype=np.int64), **columns)

    def window(self, start: int, stop: int) -> BlockTrace:
        """Requests start..stop-1, with all the node columns: ids keep their meaning."""
        start, stop, _ = slice(start, stop).indices(self.request_count)
        offsets = self.offsets[start : max(start, stop) + 1]
        columns = {name: getattr(self, name)[start : max(start, stop)] for name in _PER_REQUEST}
        return replace(self, offsets=offsets - offsets[0], nodes=self.nodes[offsets[0] : offsets[-1]], **columns)

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
    """A tree trace from an interner and whatever request columns are known; the others say unknown."""
    strangers = sorted(set(per_request) - set(_PER_REQUEST))
    if strangers:
        raise ContractError(f"trace '{name}': unknown request columns {', '.join(strangers)}")
    requests = len(offsets) - 1
    columns = {}
    for column, dtype in _PER_REQUEST.items():
        unknown = 0.0 if column == "arrival_ms" else (np.nan if dtype is np.float64 else -1)
        given = per_request.get(column)
        columns[column] = np.full(requests, unknown, dtype) if given is None else given.astype(dtype)
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
