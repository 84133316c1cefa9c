"""Is the result what its rows say? Aggregates are computed again, counts are held against one another.

A gate that believed the aggregate alone would pass whatever somebody wrote there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sembench.metrics import METRICS, aggregate, aggregate_by_transform
from sembench.metrics.rows import PlanRow, RequestRow
from semblend.contract import Evidence

_TOLERANCE: Final = 1e-9
LIVE: Final = frozenset({Evidence.MEASURED_LIVE.value, Evidence.BACKEND_CONFIRMED.value})


def integrity_failures(result: Mapping[str, Any], rows: Sequence[RequestRow]) -> list[str]:
    return [
        *_run_failures(result, rows),
        *(f"row {row.item_id}: {failure}" for row in rows for failure in _row_failures(row)),
        *_aggregate_failures("aggregate", result["aggregate"], aggregate(rows)),
        *_transform_failures(result["by_transform"], rows),
    ]


def _run_failures(result: Mapping[str, Any], rows: Sequence[RequestRow]) -> Iterator[str]:
    run = result["run"]
    if run.get("items") != len(rows):
        yield f"run.items says {run.get('items')!r}, but there are {len(rows)} rows"
    if len({row.item_id for row in rows}) != len(rows):
        yield "an item has two rows"
    if run.get("evidence") not in LIVE:
        confirmed = [
            row.item_id for row in rows if row.backend_confirmed_blocks is not None or row.route_outcome is not None
        ]
        if confirmed or result["paired"] is not None:
            yield f"evidence is {run.get('evidence')!r}, and only a live run can hold backend, route or paired figures"


def _row_failures(row: RequestRow) -> Iterator[str]:
    if row.total_blocks > row.prompt_tokens:
        yield "more blocks than tokens"
    for name in ("exact_hit_blocks", "exact_prefix_blocks", "backend_confirmed_blocks"):
        blocks = getattr(row, name)
        if blocks is not None and blocks > row.total_blocks:
            yield f"{name} {blocks} of {row.total_blocks} blocks"
    for name in ("any_position_tokens", "exact_prefix_tokens", "plan_beyond_prefix_tokens", "changed_tokens"):
        tokens = getattr(row, name)
        if tokens is not None and tokens > row.prompt_tokens:
            yield f"{name} {tokens} of {row.prompt_tokens} tokens"
    for name, plan in (("plan", row.plan), ("token_plan", row.token_plan)):
        if plan is not None:
            yield from (f"{name}: {failure}" for failure in _plan_failures(plan, row))


def _plan_failures(plan: PlanRow, row: RequestRow) -> Iterator[str]:
    if not plan.eligible_blocks <= plan.candidate_blocks <= row.total_blocks:
        yield f"{plan.eligible_blocks} eligible of {plan.candidate_blocks} candidate of {row.total_blocks} blocks"
    if not plan.candidate_blocks <= plan.planned_tokens <= row.prompt_tokens:
        yield f"{plan.candidate_blocks} candidate blocks from {plan.planned_tokens} of {row.prompt_tokens} tokens"
    if plan.decline_reason is not None and plan.planned_tokens:
        yield f"declined ({plan.decline_reason}) and yet planned"


def _aggregate_failures(where: str, stated: Mapping[str, Any], derived: Mapping[str, Any]) -> Iterator[str]:
    for name in METRICS.names():
        if name not in derived:
            continue
        if not _same(stated.get(name), derived[name]):
            yield f"{where}.{name} is {stated.get(name)!r}, but the rows give {derived[name]!r}"
    stated_parts = stated.get("parts")
    if not isinstance(stated_parts, Mapping):
        yield f"{where}.parts is missing: rates without numerator and denominator"
        return
    for name, parts in derived["parts"].items():
        given = stated_parts.get(name)
        if not isinstance(given, Mapping) or any(
            not _same(given.get(key), parts[key]) for key in ("numerator", "denominator", "evidence", "unit")
        ):
            yield f"{where}.parts.{name} is {given!r}, but the rows give {parts!r}"


def _transform_failures(stated: Mapping[str, Any], rows: Sequence[RequestRow]) -> Iterator[str]:
    derived = aggregate_by_transform(rows)
    if set(stated) != set(derived):
        yield f"by_transform has {sorted(stated)}, the rows have {sorted(derived)}"
        return
    for name, figures in derived.items():
        yield from _aggregate_failures(f"by_transform.{name}", stated[name], figures)


def _same(stated: object, derived: object) -> bool:
    if isinstance(stated, bool) or isinstance(derived, bool):
        return stated is derived
    if isinstance(stated, int | float) and isinstance(derived, int | float):
        return math.isclose(stated, derived, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return stated == derived
