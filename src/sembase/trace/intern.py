"""Block keys in, dense node ids out: (tenant, parent node, content key) becomes one node of the prefix tree.

Compiled, request by request, resumable. Costs 25 bytes per node and 24 bytes per distinct content, up to twice that
while a table doubles.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from sembase.errors import ContractError
from sembase.labels import OTHER

Scalar = TypeVar("Scalar", bound=np.generic)
NODES, CONTENTS = 0, 1  # positions in `Table.counts`
_ODD = 0x1E3779B97F4A7C15
_63_BITS = 0x7FFFFFFFFFFFFFFF


class Table(NamedTuple):
    """Node and content columns with spare capacity, and the two open-addressed indexes over them (-1: free)."""

    counts: NDArray[np.int64]
    parent: NDArray[np.int32]
    content: NDArray[np.int32]
    tokens: NDArray[np.int32]
    label: NDArray[np.uint8]
    recent_child: NDArray[np.int32]
    recent_root: NDArray[np.int32]  # one element: the most recently used root
    node_slots: NDArray[np.int32]
    content_key: NDArray[np.int64]
    content_tenant: NDArray[np.int32]
    content_slots: NDArray[np.int32]


@kernel_part
def _slot(first: int, second: int, slots: int) -> int:
    """Written so that wrapping machine integers and Python's unbounded ones agree."""
    mixed = (int(first) * _ODD + int(second)) & _63_BITS
    mixed = ((mixed ^ (mixed >> 29)) * _ODD) & _63_BITS
    mixed = ((mixed ^ (mixed >> 32)) * _ODD) & _63_BITS
    return (mixed ^ (mixed >> 29)) & (slots - 1)


@kernel_part
def _content_of(table: Table, tenant: int, key: int) -> int:
    slots = len(table.content_slots)
    slot = _slot(tenant, key, slots)
    while table.content_slots[slot] >= 0:
        content = int(table.content_slots[slot])
        if table.content_key[content] == key and table.content_tenant[content] == tenant:
            return content
        slot = (slot + 1) & (slots - 1)
    content = int(table.counts[CONTENTS])
    table.content_key[content] = key
    table.content_tenant[content] = tenant
    table.content_slots[slot] = content
    table.counts[CONTENTS] += 1
    return content


@kernel_part
def _child_of(table: Table, parent: int, content: int, tokens: int, label: int) -> int:
    slots = len(table.node_slots)
    slot = _slot(parent, content, slots)
    while table.node_slots[slot] >= 0:
        node = int(table.node_slots[slot])
        if table.parent[node] == parent and table.content[node] == content:
            return node
        slot = (slot + 1) & (slots - 1)
    node = int(table.counts[NODES])
    table.parent[node] = parent
    table.content[node] = content
    table.tokens[node] = tokens
    table.label[node] = label
    table.recent_child[node] = -1
    table.node_slots[slot] = node
    table.counts[NODES] += 1
    return node


@kernel
def _intern_request(
    table: Table,
    tenant: int,
    keys: NDArray[np.int64],
    tokens: NDArray[np.int32],
    labels: NDArray[np.uint8],
    nodes: NDArray[np.int32],
) -> None:
    """Walk one request down the tree. The most recent child is tried first, so repeated prefixes need no hashing."""
    parent = -1
    for position in range(len(keys)):
        key = int(keys[position])
        node = int(table.recent_root[0] if parent < 0 else table.recent_child[parent])
        known = False
        if node >= 0:
            content = int(table.content[node])
            known = table.content_key[content] == key and table.content_tenant[content] == tenant
        if not known:
            content = _content_of(table, tenant, key)
            node = _child_of(table, parent, content, int(tokens[position]), int(labels[position]))
            if parent < 0:
                table.recent_root[0] = node
            else:
                table.recent_child[parent] = node
        nodes[position] = node
        parent = node


@kernel
def _index_again(table: Table) -> None:
    """Fill the empty slot arrays from the columns, after they were enlarged."""
    for content in range(table.counts[CONTENTS]):
        slot = _slot(int(table.content_tenant[content]), int(table.content_key[content]), len(table.content_slots))
        while table.content_slots[slot] >= 0:
            slot = (slot + 1) & (len(table.content_slots) - 1)
        table.content_slots[slot] = content
    for node in range(table.counts[NODES]):
        slot = _slot(int(table.parent[node]), int(table.content[node]), len(table.node_slots))
        while table.node_slots[slot] >= 0:
            slot = (slot + 1) & (len(table.node_slots) - 1)
        table.node_slots[slot] = node


def _empty(room: int) -> Table:
    slots = 2 * room
    return Table(
        counts=np.zeros(2, dtype=np.int64),
        parent=np.empty(room, dtype=np.int32),
        content=np.empty(room, dtype=np.int32),
        tokens=np.empty(room, dtype=np.int32),
        label=np.empty(room, dtype=np.uint8),
        recent_child=np.empty(room, dtype=np.int32),
        recent_root=np.full(1, -1, dtype=np.int32),
        node_slots=np.full(slots, -1, dtype=np.int32),
        content_key=np.empty(room, dtype=np.int64),
        content_tenant=np.empty(room, dtype=np.int32),
        content_slots=np.full(slots, -1, dtype=np.int32),
    )


class TreeInterner:
    """Assigns a node to every block of every request. A node keeps the tokens and label it was first seen with."""

    def __init__(self) -> None:
        self._table = _empty(1024)

    @property
    def node_count(self) -> int:
        return int(self._table.counts[NODES])

    @property
    def parent(self) -> NDArray[np.int32]:
        return self._table.parent[: self.node_count].copy()

    @property
    def content(self) -> NDArray[np.int32]:
        return self._table.content[: self.node_count].copy()

    @property
    def node_tokens(self) -> NDArray[np.int32]:
        return self._table.tokens[: self.node_count].copy()

    @property
    def node_label(self) -> NDArray[np.uint8]:
        return self._table.label[: self.node_count].copy()

    def add(
        self,
        tenant: int,
        keys: NDArray[np.int64],
        tokens: NDArray[np.int32] | int,
        labels: NDArray[np.uint8] | int = OTHER,
    ) -> NDArray[np.int32]:
        """The nodes of one request, first block first. `tenant` -1 is the unnamed tenant that such requests share."""
        size = len(keys)
        token_column = _column(tokens, size, np.int32, "tokens")
        label_column = _column(labels, size, np.uint8, "labels")
        self._make_room(size)
        nodes = np.empty(size, dtype=np.int32)
        _intern_request(self._table, tenant, np.ascontiguousarray(keys, np.int64), token_column, label_column, nodes)
        return nodes

    def _make_room(self, size: int) -> None:
        room = len(self._table.parent)
        needed = int(self._table.counts.max()) + size
        if needed <= room:
            return
        if needed >= 2**30:
            raise ContractError("a trace has more than 2^30 distinct blocks; split it or sample it (SHARDS)")
        grown = _empty(1 << (needed - 1).bit_length())
        for name in Table._fields:
            if not name.endswith("_slots"):
                column = getattr(self._table, name)
                getattr(grown, name)[: len(column)] = column
        self._table = grown
        _index_again(grown)


def _column(value: NDArray[Scalar] | int, size: int, dtype: type[Scalar], name: str) -> NDArray[Scalar]:
    if isinstance(value, int):
        return np.full(size, value, dtype=dtype)
    if len(value) != size:
        raise ContractError(f"{name} has {len(value)} entries for a request of {size} blocks")
    return np.ascontiguousarray(value, dtype)
