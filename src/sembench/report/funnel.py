"""The four questions as a funnel per transform: covered, found, planned, loaded and confirmed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sembench.metrics import METRICS
from sembench.metrics.base import Figure, fraction
from sembench.metrics.rows import RequestRow

Measure = Callable[[Sequence[RequestRow]], "StageFigure | None"]


@dataclass(frozen=True, slots=True)
class StageFigure:
    """``source`` is ``bench`` (exact cache and planner, offline) or ``engine``."""

    figure: Figure
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Stage:
    key: str
    title: str
    meaning: str
    measure: Measure


@dataclass(frozen=True, slots=True)
class FunnelRow:
    name: str
    requests: int
    stages: tuple[StageFigure | None, ...]


def _metric(name: str, source: str) -> Measure:
    def measure(rows: Sequence[RequestRow]) -> StageFigure | None:
        figure = METRICS.get(name).measure(rows)
        return None if figure is None else StageFigure(figure, "blocks", source)

    return measure


def _tokens(source: str, count: Callable[[RequestRow], int | None]) -> Measure:
    """Tokens divided by the prompt tokens of the rows that have the count."""

    def measure(rows: Sequence[RequestRow]) -> StageFigure | None:
        counted = [(tokens, row.prompt_tokens) for row in rows if (tokens := count(row)) is not None]
        figure = fraction(sum(tokens for tokens, _ in counted), sum(prompt for _, prompt in counted))
        return None if figure is None else StageFigure(figure, "tokens", source)

    return measure


def _first_of(*measures: Measure) -> Measure:
    def measure(rows: Sequence[RequestRow]) -> StageFigure | None:
        return next((found for one in measures if (found := one(rows)) is not None), None)

    return measure


STAGES: Final = (
    Stage(
        "exact",
        "exact",
        "unbroken prefix blocks an exact cache holds",
        _metric("exact_prefix_block_rate", "bench"),
    ),
    Stage(
        "candidate",
        "candidate",
        "blocks (engine: tokens) a planner proposed",
        _first_of(
            _metric("semantic_candidate_block_rate", "bench"),
            _tokens("engine", lambda row: row.backend.found_tokens if row.backend else None),
        ),
    ),
    Stage(
        "eligible",
        "eligible",
        "proposed blocks from one donor at consecutive positions",
        _metric("semantic_eligible_block_rate", "bench"),
    ),
    Stage(
        "planned",
        "planned",
        "tokens advertised to the scheduler (without an engine: tokens in the plan)",
        _first_of(
            _tokens("engine", lambda row: row.backend.advertised_tokens if row.backend else None),
            _tokens("bench", lambda row: row.plan.planned_tokens if row.plan else None),
        ),
    ),
    Stage(
        "materialized",
        "materialized",
        "donor tokens the engine's events report as loaded",
        _tokens("engine", lambda row: row.backend.reused_tokens if row.backend else None),
    ),
    Stage(
        "confirmed",
        "confirmed",
        "blocks the backend confirmed as reused: the only stage called reuse",
        _metric("backend_confirmed_block_rate", "engine"),
    ),
)


def funnel_of(rows: Sequence[RequestRow]) -> tuple[FunnelRow, ...]:
    """First all requests except negative controls, then each transform in the order of the run."""
    ordinary = [row for row in rows if not row.negative_control]
    groups = {name: [row for row in rows if row.transform == name] for name in dict.fromkeys(r.transform for r in rows)}
    whole = [_row("all but negative controls", ordinary)] if ordinary and len(groups) > 1 else []
    return (*whole, *(_row(name, group) for name, group in groups.items()))


def _row(name: str, rows: Sequence[RequestRow]) -> FunnelRow:
    return FunnelRow(name, len(rows), tuple(stage.measure(rows) for stage in STAGES))
