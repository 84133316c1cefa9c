"""Requests in, one at a time; the columns of a trace out. Every loader that meets requests one by one uses this."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ContractError
from sembase.labels import OTHER
from sembase.trace.columns import PER_REQUEST, BlockTrace, block_trace, unknown_value
from sembase.trace.intern import TreeInterner

S = TypeVar("S", bound=np.generic)


class Column(Generic[S]):
    """A column that grows: one array, doubled when full. While it grows it costs up to twice the array's bytes."""

    def __init__(self, dtype: type[S]) -> None:
        self._array: NDArray[S] = np.empty(1024, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, value: float) -> None:
        self._make_room(1)
        self._array[self._length] = value
        self._length += 1

    def extend(self, values: NDArray[S]) -> None:
        self._make_room(len(values))
        self._array[self._length : self._length + len(values)] = values
        self._length += len(values)

    def array(self) -> NDArray[S]:
        return self._array[: self._length].copy()

    def _make_room(self, more: int) -> None:
        needed = self._length + more
        if needed > len(self._array):
            grown: NDArray[S] = np.empty(max(needed, 2 * len(self._array)), self._array.dtype)
            grown[: self._length] = self._array[: self._length]
            self._array = grown


class TraceRows:
    """The requests of one trace so far. Nodes and their ids are kept across calls of ``take``."""

    def __init__(self) -> None:
        self._interner = TreeInterner()
        self._clear()

    def _clear(self) -> None:
        self._offsets, self._nodes = Column(np.int64), Column(np.int32)
        self._offsets.append(0)
        self._columns: dict[str, Column[Any]] = {name: Column(dtype) for name, dtype in PER_REQUEST.items()}

    def __len__(self) -> int:
        """Requests added since the last ``take``."""
        return len(self._offsets) - 1

    @property
    def node_count(self) -> int:
        return self._interner.node_count

    def add(
        self,
        keys: NDArray[np.int64],
        tokens: NDArray[np.int32] | int,
        labels: NDArray[np.uint8] | int = OTHER,
        *,
        namespace: int = -1,
        **known: float | None,
    ) -> None:
        """One request: a content key, a token count and a label per block. Nodes are shared within ``namespace`` only.

        ``known`` are request columns by name; a column that is left out or None is unknown.
        """
        self._nodes.extend(self._interner.add(namespace, keys, tokens, labels))
        self._offsets.append(len(self._nodes))
        for name, column in self._columns.items():
            value = known.get(name)
            column.append(unknown_value(name) if value is None else value)

    def take(self, name: str, *, block_tokens: int | None = None) -> BlockTrace:
        """The requests since the last ``take`` with all nodes so far: chunks of one trace share node ids."""
        if not len(self):
            raise ContractError(f"{name}: contains no requests")
        columns = {column: values.array() for column, values in self._columns.items()}
        offsets, nodes = self._offsets.array(), self._nodes.array()
        self._clear()
        return block_trace(name, offsets, nodes, self._interner, block_tokens=block_tokens, **columns)
