"""One row of a result: the counts of one request, and which rows are pairs that may be compared. None: not measured.

Runners write rows, metrics read them, and the gates read them again to check that the aggregates follow from them. A
pair is failed (an arm did not end ok, or got no token), contaminated (its cold arm was not cold) or clean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_type_hints

from sembase.errors import ContractError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """The plan of one request, counted by the bench itself. Proposed, never confirmed.

    ``unverified_tokens`` are planned positions whose donor token differs from the recipient's. No other count includes
    them.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRow:
    """One live request as the client saw it. ``status`` is ``ok`` or the kind of failure; times are the client's.

    ``contaminated`` is set for cold arms: the server had more than one block of the prompt cached. ``answer_*`` are by
    the item's own score: what it read from the text, its value, whether it is right, and whether it is the answer of an
    earlier revision of the document.
    """

    request_id: str
    status: str
    ttft_ms: float | None = None
    total_ms: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    contaminated: bool | None = None
    text: str | None = None
    token_recall: float | None = None
    f1: float | None = None
    rouge_l: float | None = None
    exact_match: bool | None = None
    answer_read: str | None = None
    answer_score: float | None = None
    answer_right: bool | None = None
    answer_stale: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """The warm answer against the cold one. KL is over the union of both top-k, at positions with equal history."""

    warm_first: bool
    mean_kl: float | None = None
    worst_kl: float | None = None
    compared_positions: int | None = None
    agreed_tokens: int | None = None
    answer_flip: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRow:
    """What the engine's events report about the warm request. Only ``reused_tokens`` counts as reuse.

    ``propagated_tokens`` were served to a later exact request beyond the true exact prefix; must be 0.
    """

    engine_request_id: str
    outcome: str
    found_tokens: int | None = None
    advertised_tokens: int | None = None
    boundary: int | None = None
    reused_tokens: int | None = None
    computed_tokens: int | None = None
    runs: int | None = None
    decline_reason: str | None = None
    faults: int | None = None
    load_ms: float | None = None
    compute_ms: float | None = None
    propagated_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """``plan`` is the configured planner's; ``token_plan`` the one without embedder, if the run compares both.

    ``plan_beyond_prefix_tokens`` are planned when the planner is given the exact prefix, as an engine does. A live run
    without pairs has only ``warm``.
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
    route_worker: str | None = None
    route_similarity: float | None = None
    quality_pass: bool | None = None
    cold: ArmRow | None = None
    warm: ArmRow | None = None
    pair: PairRow | None = None
    backend: BackendRow | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def pairs_of(rows: Sequence[RequestRow]) -> list[RequestRow]:
    return [row for row in rows if row.cold is not None and row.warm is not None]


def timed(arm: ArmRow | None) -> float | None:
    """TTFT of an arm that ended ok; None if there is nothing to compare."""
    if arm is None or arm.status != "ok" or arm.ttft_ms is None or not arm.ttft_ms > 0:
        return None
    return arm.ttft_ms


def is_failed(row: RequestRow) -> bool:
    return timed(row.cold) is None or timed(row.warm) is None


def is_checked(row: RequestRow) -> bool:
    """Whether the server reported how many tokens of the cold prompt were cached."""
    return row.cold is not None and row.cold.cached_tokens is not None and row.cold.contaminated is not None


def is_contaminated(row: RequestRow, block_size: int | None = None) -> bool:
    """By the row's own flag or, given the block size, by its cached tokens: the flag cannot hide them."""
    cold = row.cold
    if cold is None:
        return False
    over = block_size is not None and cold.cached_tokens is not None and cold.cached_tokens > block_size
    return cold.contaminated is True or over


def is_clean(row: RequestRow, block_size: int | None = None) -> bool:
    """A pair whose arms may be compared."""
    return not is_failed(row) and not is_contaminated(row, block_size)


def speedup(row: RequestRow) -> float:
    """Cold TTFT over warm TTFT of a clean pair."""
    cold_ms, warm_ms = timed(row.cold), timed(row.warm)
    if cold_ms is None or warm_ms is None:
        raise ValueError(f"{row.item_id} is not a clean pair")
    return cold_ms / warm_ms


def e2e_speedup(row: RequestRow) -> float | None:
    """Cold over warm time to the last token of a clean pair; None if a time is missing."""
    cold_ms = None if row.cold is None else row.cold.total_ms
    warm_ms = None if row.warm is None else row.warm.total_ms
    return cold_ms / warm_ms if cold_ms and warm_ms else None


def is_reused(row: RequestRow) -> bool | None:
    """Whether the backend confirmed reuse for the warm request; None if it reported nothing."""
    if row.backend is None or row.backend.reused_tokens is None:
        return None
    return row.backend.reused_tokens > 0


def cold_arm(row: RequestRow) -> ArmRow | None:
    """The cold arm if figures may use it: it ended ok and was cold, and so was its pair if it has one."""
    if timed(row.cold) is None or is_contaminated(row) or (row.warm is not None and not is_clean(row)):
        return None
    return row.cold


def warm_arm(row: RequestRow) -> ArmRow | None:
    """The warm arm if figures may use it: it ended ok, and its pair is clean if it has one."""
    if timed(row.warm) is None or (row.cold is not None and not is_clean(row)):
        return None
    return row.warm


_PARTS: Final[dict[str, type[Any]]] = {
    "plan": PlanRow,
    "token_plan": PlanRow,
    "cold": ArmRow,
    "warm": ArmRow,
    "pair": PairRow,
    "backend": BackendRow,
}

_SIGNED: Final = frozenset({"route_similarity"})  # a cosine


# Computed once: reading a result needs them for every row.
_ROWS: Final[tuple[type[Any], ...]] = (RequestRow, *_PARTS.values())
_HINTS: Final = {cls.__name__: get_type_hints(cls) for cls in _ROWS}


def row_from_json(record: object, where: str) -> RequestRow:
    values = _checked_fields(RequestRow, record, where)
    for name, part in _PARTS.items():
        if values.get(name) is not None:
            values[name] = part(**_checked_fields(part, values[name], f"{where}: {name}"))
    return RequestRow(**values)


def _checked_fields(cls: type[Any], record: object, where: str) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise ContractError(f"{where}: not a JSON object")
    known = {f.name for f in fields(cls)}
    if unknown := sorted(set(record) - known):
        raise ContractError(f"{where}: unknown keys {', '.join(unknown)}")
    hints = _HINTS[cls.__name__]
    required = {f.name for f in fields(cls)} - set(_optional(cls))
    if missing := sorted(required - set(record)):
        raise ContractError(f"{where}: missing {', '.join(missing)}")
    for name, value in record.items():
        if not _fits(value, hints[name]):
            raise ContractError(f"{where}: '{name}' is {value!r}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            _check_number(name, value, where)
    return dict(record)


def _check_number(name: str, value: float, where: str) -> None:
    if not math.isfinite(value):
        raise ContractError(f"{where}: '{name}' is {value!r}, which is not a measurement")
    if value < 0 and name not in _SIGNED:
        raise ContractError(f"{where}: '{name}' is {value!r}, but counts are not negative")


def _optional(cls: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls) if f.default is None)


def _fits(value: object, hint: Any) -> bool:
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    for option in options:
        if option is NoneType and value is None:
            return True
        if option in _PARTS.values() and isinstance(value, Mapping):
            return True
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return True
        if option in (str, bool) and isinstance(value, option):
            return True
        if option is int and isinstance(value, int) and not isinstance(value, bool):
            return True
    return False
