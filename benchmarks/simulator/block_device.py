"""Block I/O of a CloudPhysics volume (``version,time,op,size,lbn``) as a block set: for parity with other simulators.

Every row is a request for one block of size 1, identified by its logical block number; size and operation are ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from sembase.errors import ContractError
from sembase.labels import OTHER
from sembase.trace.columns import BlockTrace
from sembase.trace.files import iter_lines, trace_name
from sembase.trace.rows import Column

_HEADER: Final = b"version,time,op,size,lbn"


def load(path: Path) -> BlockTrace:
    ids: dict[int, int] = {}
    nodes, arrival_ms = Column(np.int32), Column(np.float64)
    for number, line in iter_lines(path):
        if line.strip() == _HEADER:
            continue
        cells = line.split(b",")
        if len(cells) != 5 or not _is_number(cells[1]) or not _is_number(cells[4].strip()):
            raise ContractError(f"{path.name} line {number}: expected version,time,op,size,lbn")
        arrival_ms.append(int(cells[1]))
        nodes.append(ids.setdefault(int(cells[4]), len(ids)))
    if not ids:
        raise ContractError(f"{path.name}: contains no requests")
    return _block_set(trace_name(path), nodes.array(), arrival_ms.array(), len(ids))


def _is_number(cell: bytes) -> bool:
    return cell.isdigit() and len(cell) <= 18


def _block_set(name: str, nodes: np.ndarray, arrival_ms: np.ndarray, node_count: int) -> BlockTrace:
    requests = len(nodes)
    unknown = np.full(requests, -1, np.int32)
    not_observed = np.full(requests, np.nan)
    return BlockTrace(
        name=name,
        block_tokens=1,
        offsets=np.arange(requests + 1, dtype=np.int64),
        nodes=nodes,
        parent=None,
        content=np.arange(node_count, dtype=np.int32),
        node_tokens=np.ones(node_count, np.int32),
        node_label=np.full(node_count, OTHER, np.uint8),
        arrival_ms=arrival_ms,
        session=unknown,
        tenant=unknown,
        output_tokens=unknown,
        finish=unknown,
        observed_ttft_ms=not_observed,
        observed_prefill_tokens=not_observed,
        observed_hit_tokens=not_observed,
    )
