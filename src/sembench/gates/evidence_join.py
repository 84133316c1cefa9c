"""Which loads of the engine's events are those of a result's rows. Ids an engine made unique must be the row's own.

Otherwise the events of another run of the same manifest would prove this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sembench.gates.engine_summary import Load, larger
from sembench.gates.request_ids import carries_nonce, item_of
from sembench.metrics.rows import RequestRow


def own_ids(engine_ids: Iterable[str], rows: Sequence[RequestRow]) -> dict[str, list[str]]:
    """By item the engine's ids that are its warm request in this very run."""
    known = {row.item_id for row in rows}
    exact = {row.item_id: name for row in rows if (name := _unique_name(row)) is not None}
    found: dict[str, list[str]] = {}
    for engine_id in engine_ids:
        item = item_of(engine_id, known)
        if item is not None and exact.get(item, engine_id) == engine_id:
            found.setdefault(item, []).append(engine_id)
    return found


def loads_by_item(loads: Mapping[str, Load], rows: Sequence[RequestRow]) -> dict[str, Load]:
    """A request sent twice is told of twice; the larger load is the one its row may claim."""
    joined = {}
    for item, engine_ids in own_ids(loads, rows).items():
        most = loads[engine_ids[0]]
        for engine_id in engine_ids[1:]:
            most = larger(most, loads[engine_id])
        joined[item] = most
    return joined


def _unique_name(row: RequestRow) -> str | None:
    name = None if row.backend is None else row.backend.engine_request_id
    return name if name is not None and carries_nonce(name, row.item_id) else None
