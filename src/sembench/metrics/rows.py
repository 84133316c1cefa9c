"""One row of a result: the counts of one request, from which every aggregate follows. None means not measured.

Runners write rows, metrics read them, and the gates read them again to check that the aggregates are really theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from semblend.errors import ContractError


@dataclass(frozen=True, slots=True)
class PlanRow:
    """The planner's answer for one request, counted by the bench itself. Proposed, never confirmed.

    ``unverified_tokens`` are planned positions whose donor token is not the recipient's. They count for nothing else.
    """

    candidate_blocks: int
    eligible_blocks: int
    planned_tokens: int
    unverified_tokens: int
    runs: int
    donors: int
    discoveries: int
    decline_reason: str | None
    mean_context_share: float | None
    plan_ms: float


@dataclass(frozen=True, slots=True)
class RequestRow:
    """``plan`` is the configured planner's; ``token_plan`` the same without embedder, only if the run compares both.

    ``plan_beyond_prefix_tokens`` is planned when the planner is told of the exact prefix, as an engine tells it.
    """

    item_id: str
    dataset: str
    source_id: str
    transform: str
    negative_control: bool
    tenant: str | None
    stream_id: str | None
    prompt_tokens: int
    total_blocks: int
    exact_hit_blocks: int | None = None
    exact_prefix_blocks: int | None = None
    exact_prefix_tokens: int | None = None
    any_position_tokens: int | None = None
    plan: PlanRow | None = None
    token_plan: PlanRow | None = None
    plan_beyond_prefix_tokens: int | None = None
    changed_tokens: int | None = None
    changed_planned_tokens: int | None = None
    backend_confirmed_blocks: int | None = None
    route_outcome: str | None = None
    quality_pass: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def row_from_json(record: object, where: str) -> RequestRow:
    values = _checked_fields(RequestRow, record, where)
    for name in ("plan", "token_plan"):
        if values.get(name) is not None:
            values[name] = PlanRow(**_checked_fields(PlanRow, values[name], f"{where}: {name}"))
    return RequestRow(**values)


def _checked_fields(cls: type[Any], record: object, where: str) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise ContractError(f"{where}: not a JSON object")
    known = {f.name for f in fields(cls)}
    if unknown := sorted(set(record) - known):
        raise ContractError(f"{where}: unknown keys {', '.join(unknown)}")
    hints = get_type_hints(cls)
    required = {f.name for f in fields(cls)} - set(_optional(cls))
    if missing := sorted(required - set(record)):
        raise ContractError(f"{where}: missing {', '.join(missing)}")
    for name, value in record.items():
        if not _fits(value, hints[name]):
            raise ContractError(f"{where}: '{name}' is {value!r}")
        if isinstance(value, int | float) and not isinstance(value, bool) and not value >= 0:
            raise ContractError(f"{where}: '{name}' is {value!r}, and no count is negative")
    return dict(record)


def _optional(cls: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls) if f.default is None)


def _fits(value: object, hint: Any) -> bool:
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    for option in options:
        if option is NoneType and value is None:
            return True
        if option is PlanRow and isinstance(value, Mapping):
            return True
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return True
        if option in (str, bool) and isinstance(value, option):
            return True
        if option is int and isinstance(value, int) and not isinstance(value, bool):
            return True
    return False
