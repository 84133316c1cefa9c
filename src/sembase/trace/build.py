"""Trace records in, columns for the simulator out: one node per (tenant, exact preceding blocks, content)."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from sembase.errors import ContractError
from sembase.labels import label_index
from sembase.trace.columns import BlockTrace
from sembase.trace.record import TraceBlock, TraceRecord
from sembase.trace.rows import TraceRows

REORDERED_RECORDS: Final = 4096
REORDERED_CHARACTERS: Final = 256 << 20  # of their texts


class Names:
    """Names to dense ids, numbered by first occurrence; None is -1. About 150 bytes per distinct name."""

    def __init__(self) -> None:
        self._ids: dict[object, int] = {}

    def id_of(self, name: object | None) -> int:
        return -1 if name is None else self._ids.setdefault(name, len(self._ids))


class TraceBuilder:
    """Turns records into columns one by one; a record is not needed after ``add``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._rows = TraceRows()
        self._contents, self._sessions, self._tenants = Names(), Names(), Names()

    def __len__(self) -> int:
        """Requests added since the last ``take``."""
        return len(self._rows)

    @property
    def node_count(self) -> int:
        return self._rows.node_count

    def add(self, record: TraceRecord) -> None:
        tenant = self._tenants.id_of(record.tenant_id)
        self._rows.add(
            np.array([self._contents.id_of(content_key(block)) for block in record.blocks], np.int64),
            np.array([block.token_count for block in record.blocks], np.int32),
            np.array([label_index(block.semantic_type) for block in record.blocks], np.uint8),
            namespace=tenant,
            arrival_ms=record.timestamp_ms,
            session=self._sessions.id_of(record.session_id),
            tenant=tenant,
            output_tokens=record.output_tokens,
            observed_ttft_ms=record.observed_ttft_ms,
            observed_prefill_tokens=record.observed_prefill_tokens,
            observed_hit_tokens=record.observed_prefix_hit_tokens,
        )

    def take(self) -> BlockTrace:
        """The requests since the last ``take`` with all nodes so far: chunks of one trace share node ids."""
        return self._rows.take(self.name)


def build_trace(records: Iterable[TraceRecord], name: str) -> BlockTrace:
    builder = TraceBuilder(name)
    for record in records:
        builder.add(record)
    return builder.take()


def content_key(block: TraceBlock) -> tuple[str, int]:
    """What must be equal for two blocks to hold the same tokens. The label does not count."""
    if block.content_hash is not None:
        return block.content_hash, block.token_count
    if block.text is not None:
        return hashlib.sha256(block.text.encode("utf-8", "surrogatepass")).hexdigest(), block.token_count
    return f"id {block.block_id}", block.token_count


def in_time_order(records: Iterable[TraceRecord], name: str) -> Iterator[TraceRecord]:
    """The records sorted by arrival; collectors write them as they finish. Holds ``REORDERED_RECORDS``
    with ``REORDERED_CHARACTERS`` of text at most."""
    waiting: list[tuple[float, int, TraceRecord]] = []
    latest_ms, characters = float("-inf"), 0
    for number, record in enumerate(records):
        if record.timestamp_ms < latest_ms:
            raise ContractError(
                f"{name}: request {number} ({record.request_id}) arrived before a request more than "
                f"{len(waiting)} lines earlier; sort the trace by timestamp_ms"
            )
        heapq.heappush(waiting, (record.timestamp_ms, number, record))
        characters += _characters(record)
        while len(waiting) > REORDERED_RECORDS or (characters > REORDERED_CHARACTERS and len(waiting) > 1):
            latest_ms, _, earliest = heapq.heappop(waiting)
            characters -= _characters(earliest)
            yield earliest
    while waiting:
        yield heapq.heappop(waiting)[2]


def _characters(record: TraceRecord) -> int:
    return sum(len(block.text) for block in record.blocks if block.text is not None)
