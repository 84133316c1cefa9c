"""Trace records to the columns the simulator reads: one node for each (tenant, exact blocks in front, content)."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from sembase.errors import ContractError
from sembase.labels import label_index
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace
from sembase.trace.grow import Column
from sembase.trace.record import TraceBlock, TraceRecord

REORDERED_RECORDS: Final = 4096


class Names:
    """Text to dense ids in order of first sight; None is -1. About 150 bytes for each distinct name."""

    def __init__(self) -> None:
        self._ids: dict[object, int] = {}

    def id_of(self, name: object | None) -> int:
        return -1 if name is None else self._ids.setdefault(name, len(self._ids))


class TraceBuilder:
    """Takes records one by one, keeps columns only: the records themselves may be forgotten."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._interner = TreeInterner()
        self._contents, self._sessions, self._tenants = Names(), Names(), Names()
        self._empty_rows()

    def _empty_rows(self) -> None:
        self._offsets, self._nodes = Column(np.int64), Column(np.int32)
        self._offsets.append(0)
        self._columns: dict[str, Column[Any]] = {
            "arrival_ms": Column(np.float64),
            "session": Column(np.int32),
            "tenant": Column(np.int32),
            "output_tokens": Column(np.int32),
            "observed_ttft_ms": Column(np.float64),
            "observed_prefill_tokens": Column(np.float64),
            "observed_hit_tokens": Column(np.float64),
        }

    def __len__(self) -> int:
        """Requests added since the last ``take``."""
        return len(self._offsets) - 1

    def add(self, record: TraceRecord) -> None:
        tenant = self._tenants.id_of(record.tenant_id)
        keys = np.array([self._contents.id_of(content_key(block)) for block in record.blocks], np.int64)
        tokens = np.array([block.token_count for block in record.blocks], np.int32)
        labels = np.array([label_index(block.semantic_type) for block in record.blocks], np.uint8)
        self._nodes.extend(self._interner.add(tenant, keys, tokens, labels))
        self._offsets.append(len(self._nodes))
        row = {
            "arrival_ms": record.timestamp_ms,
            "session": self._sessions.id_of(record.session_id),
            "tenant": tenant,
            "output_tokens": -1 if record.output_tokens is None else record.output_tokens,
            "observed_ttft_ms": _or_nan(record.observed_ttft_ms),
            "observed_prefill_tokens": _or_nan(record.observed_prefill_tokens),
            "observed_hit_tokens": _or_nan(record.observed_prefix_hit_tokens),
        }
        for column, value in row.items():
            self._columns[column].append(value)

    def take(self) -> BlockTrace:
        """The requests since the last ``take``, with the node columns so far: chunks of one trace, ids keep meaning."""
        if not len(self):
            raise ContractError(f"{self.name}: holds no requests")
        columns = {name: column.array() for name, column in self._columns.items()}
        offsets, nodes = self._offsets.array(), self._nodes.array()
        self._empty_rows()
        return block_trace(self.name, offsets, nodes, self._interner, block_tokens=None, **columns)


def build_trace(records: Iterable[TraceRecord], name: str) -> BlockTrace:
    builder = TraceBuilder(name)
    for record in records:
        builder.add(record)
    return builder.take()


def content_key(block: TraceBlock) -> tuple[str, int]:
    """What must be equal for two blocks to hold the same tokens. The label is no part of it."""
    if block.content_hash is not None:
        return block.content_hash, block.token_count
    if block.text is not None:
        return hashlib.sha256(block.text.encode("utf-8", "surrogatepass")).hexdigest(), block.token_count
    return f"id {block.block_id}", block.token_count


def in_time_order(records: Iterable[TraceRecord], name: str) -> Iterator[TraceRecord]:
    """The records by time of arrival: collectors write them as they finish. Holds up to ``REORDERED_RECORDS``."""
    waiting: list[tuple[float, int, TraceRecord]] = []
    latest_ms = float("-inf")
    for number, record in enumerate(records):
        if record.timestamp_ms < latest_ms:
            raise ContractError(
                f"{name}: request {number} ({record.request_id}) arrived before one that stands more than "
                f"{REORDERED_RECORDS} requests in front of it; sort the trace by timestamp_ms"
            )
        heapq.heappush(waiting, (record.timestamp_ms, number, record))
        if len(waiting) > REORDERED_RECORDS:
            latest_ms, _, earliest = heapq.heappop(waiting)
            yield earliest
    while waiting:
        yield heapq.heappop(waiting)[2]


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)
