"""Engine loads -> the rows of a result they belong to. An id that the engine made unique must equal the row's own id.

Otherwise the events of another run of the same manifest would count as evidence for this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from sembench.gates.engine_summary import Load, larger
from sembench.gates.request_ids import carries_nonce, item_of
from sembench.metrics.rows import RequestRow


def own_ids(engine_ids: Iterable[str], rows: Sequence[RequestRow]) -> dict[str, list[str]]:
    """For each item, the engine ids of its warm request in this run."""
    known = {row.item_id for row in rows}
    exact = {row.item_id: name for row in rows if (name := _unique_name(row)) is not None}
    found: dict[str, list[str]] = {}
    for engine_id in engine_ids:
        item = item_of(engine_id, known)
        if item is not None and exact.get(item, engine_id) == engine_id:
            found.setdefault(item, []).append(engine_id)
    return found


def loads_by_item(loads: Mapping[str, Load], rows: Sequence[RequestRow]) -> dict[str, Load]:
    """A request that was sent twice has two loads; its row may claim the larger one."""
    own = own_ids(loads, rows)
    return {item: reduce(larger, (loads[engine_id] for engine_id in ids)) for item, ids in own.items()}


def _unique_name(row: RequestRow) -> str | None:
    name = None if row.backend is None else row.backend.engine_request_id
    return name if name is not None and carries_nonce(name, row.item_id) else None
