"""Checks a result against its own rows: aggregates and pairs are recomputed, and counts are cross-checked.

A gate that trusted the aggregate alone would pass any number written there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sembase.errors import ContractError
from sembench.gates.row_laws import row_failures
from sembench.gates.verdict import number
from sembench.metrics import aggregate, aggregate_by_transform
from sembench.metrics.rows import RequestRow
from sembench.result import paired_block
from semblend.contract import Evidence

_RELATIVE_TOLERANCE: Final = 1e-9
_ABSOLUTE_TOLERANCE: Final = 1e-12
_MAX_ROW_FAILURES: Final = 20
LIVE: Final = frozenset({Evidence.MEASURED_LIVE.value, Evidence.BACKEND_CONFIRMED.value})
_LIVE_FIELDS: Final = ("backend_confirmed_blocks", "backend", "cold", "warm", "pair", "route_outcome", "quality_pass")


def integrity_failures(result: Mapping[str, Any], rows: Sequence[RequestRow]) -> list[str]:
    return [
        *_run_failures(result, rows),
        *_law_failures(rows, _block_size(result), quality_threshold(result)),
        *_differences("aggregate", result["aggregate"], aggregate(rows)),
        *_differences("by_transform", result["by_transform"], aggregate_by_transform(rows)),
        *_paired_failures(result, rows),
    ]


def _law_failures(rows: Sequence[RequestRow], block_size: int | None, threshold: float | None) -> list[str]:
    failures = [f"row {row.item_id}: {failure}" for row in rows for failure in row_failures(row, block_size, threshold)]
    more = len(failures) - _MAX_ROW_FAILURES
    return failures if more <= 0 else [*failures[:_MAX_ROW_FAILURES], f"and {more} more row failures"]


def _block_size(result: Mapping[str, Any]) -> int | None:
    block_size = result["config"].get("block_size")
    return block_size if type(block_size) is int and block_size > 0 else None


def quality_threshold(result: Mapping[str, Any]) -> float | None:
    """The minimum score of a good answer in this run; None if the run does not record it."""
    return number(result["config"].get("quality_threshold"))


def _run_failures(result: Mapping[str, Any], rows: Sequence[RequestRow]) -> Iterator[str]:
    run = result["run"]
    if run.get("items") != len(rows):
        yield f"run.items is {run.get('items')!r}, but there are {len(rows)} rows"
    if len({row.item_id for row in rows}) != len(rows):
        yield "an item has more than one row"
    if run.get("evidence") in LIVE:
        if idle := [row.item_id for row in rows if row.cold is None and row.warm is None]:
            yield f"evidence is {run.get('evidence')!r}, but {len(idle)} rows have no server request ({idle[0]} first)"
        return
    live = [row.item_id for row in rows if any(getattr(row, name) is not None for name in _LIVE_FIELDS)]
    if live or result["paired"] is not None:
        yield (
            f"evidence is {run.get('evidence')!r}, but only a live run can have arms, backend, route, quality or "
            f"paired figures ({len(live)} rows do)"
        )


def _paired_failures(result: Mapping[str, Any], rows: Sequence[RequestRow]) -> Iterator[str]:
    seed = result["run"].get("seed")
    try:
        derived = paired_block(rows, result["config"], seed if type(seed) is int else None)
    except ContractError as error:
        yield str(error)
        return
    yield from _differences("paired", result["paired"], derived)


def _differences(where: str, stated: Any, derived: Any) -> Iterator[str]:
    """One message per value that differs, with its path."""
    if isinstance(derived, Mapping) and isinstance(stated, Mapping):
        for key in dict.fromkeys([*derived, *stated]):
            if key not in stated:
                yield f"{where}.{key} is missing, but the rows give {derived[key]!r}"
            elif key not in derived:
                yield f"{where}.{key} is {stated[key]!r}, but the rows give no such figure"
            else:
                yield from _differences(f"{where}.{key}", stated[key], derived[key])
    elif isinstance(derived, list) and isinstance(stated, list) and len(derived) == len(stated):
        for index, (ours, theirs) in enumerate(zip(stated, derived, strict=True)):
            yield from _differences(f"{where}[{index}]", ours, theirs)
    elif not _same(stated, derived):
        yield f"{where} is {stated!r}, but the rows give {derived!r}"


def _same(stated: object, derived: object) -> bool:
    if isinstance(stated, bool) or isinstance(derived, bool):
        return stated is derived
    if isinstance(stated, int | float) and isinstance(derived, int | float):
        return math.isclose(stated, derived, rel_tol=_RELATIVE_TOLERANCE, abs_tol=_ABSOLUTE_TOLERANCE)
    return stated == derived
