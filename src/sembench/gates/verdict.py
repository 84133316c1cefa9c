"""Applies the requested gates. In: a result, its rows, engine evidence. Out: a verdict with every reason to fail."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sembench.gates.engine_summary import EngineEvidence
from sembench.gates.integrity import LIVE, integrity_failures
from sembench.gates.request import GateRequest
from sembench.gates.request_ids import requests_of_result
from sembench.metrics.rows import RequestRow
from sembench.must_be_zero import CONFIRMED_NEGATIVES, CROSS_TENANT, MUST_BE_ZERO, planned_from_another_tenant

_DEFAULT_NEGATIVE_LIMIT: Final = 0.0


@dataclass(slots=True)
class Verdict:
    """``checked`` names the figures that must be zero and were measured."""

    allow_missing: bool
    failures: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    observed: dict[str, Any] = field(default_factory=dict)
    checked: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures

    def decide(self, gate: str, metric: str, value: float | None, holds: Callable[[float], bool], wanted: str) -> None:
        self.observed[metric] = value
        if value is None:
            self.lack(metric, f"{gate}: {metric} was not measured (None is not 0); --allow-missing lets that pass")
        elif not holds(value):
            self.failures.append(f"{gate}: {metric} is {value:.6g}, wanted {wanted}")

    def lack(self, metric: str, complaint: str) -> None:
        """What was asked for is not there: a failure, unless the user said that it may be missing."""
        self.missing.append(metric)
        if not self.allow_missing:
            self.failures.append(complaint)


def judge(
    result: Mapping[str, Any],
    rows: Sequence[RequestRow],
    engine: EngineEvidence | None,
    request: GateRequest,
    noise_floor_kl: float | None = None,
) -> Verdict:
    verdict = Verdict(request.allow_missing, failures=integrity_failures(result, rows))
    paired = result["paired"] if isinstance(result["paired"], dict) else {}
    for gate, limit in request.requested().items():
        if gate in _AT_LEAST:
            source, metric = _AT_LEAST[gate]
            value = _look_up(source, metric, result["aggregate"], paired, engine)
            verdict.decide(gate, metric, value, partial(operator.le, limit), f"at least {limit}")
    _judge_zeros(verdict, rows)
    _judge_negatives(verdict, request, result["aggregate"])
    _judge_paired(verdict, request, paired, noise_floor_kl)
    _judge_engine(verdict, request, engine)
    _judge_reuse(verdict, request, engine, result["run"].get("evidence"), rows)
    return verdict


def _judge_zeros(verdict: Verdict, rows: Sequence[RequestRow]) -> None:
    """What no flag can allow, judged whenever it was measured: see :mod:`sembench.must_be_zero`."""
    for check in MUST_BE_ZERO:
        if check.name == CONFIRMED_NEGATIVES:
            continue  # the one with a limit of its own: _judge_negatives
        figure = check.measure(rows)
        verdict.observed[check.name] = None if figure is None else figure.value
        if figure is None:
            continue
        verdict.checked.append(check.name)
        if figure.value:
            first = f"; {planned_from_another_tenant(rows)[0].item_id} first" if check.name == CROSS_TENANT else ""
            verdict.failures.append(
                f"{check.name} is {figure.value:.6g} ({figure.numerator:.0f} of {figure.denominator:.0f}), "
                f"and must be zero{first}"
            )


# Gates of the form "at least": where the figure stands, and its name there.
_AT_LEAST: Final = {
    "min_quality_pass_rate": ("aggregate", "quality_pass_rate"),
    "min_semantic_placement_rate": ("aggregate", "semantic_placement_rate_by_request"),
    "min_backend_confirmed_block_rate": ("aggregate", "backend_confirmed_block_rate"),
    "min_semantic_eligible_lift": ("aggregate", "semantic_eligible_lift"),
    "min_any_position_token_rate": ("aggregate", "any_position_token_rate"),
    "min_materialization_events": ("engine", "materialization_events"),
    "min_materialized_tokens": ("engine", "materialized_tokens"),
    "min_materialized_units": ("engine", "materialized_units"),
    "min_blended_ttft_speedup": ("paired", "blended_ttft_speedup_median"),
}


def _look_up(
    source: str, metric: str, aggregate: Mapping[str, Any], paired: Mapping[str, Any], engine: EngineEvidence | None
) -> float | None:
    if source == "engine":
        return None if engine is None else getattr(engine, metric)
    return _figure((aggregate if source == "aggregate" else paired).get(metric))


def _figure(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _judge_negatives(verdict: Verdict, request: GateRequest, aggregate: Mapping[str, Any]) -> None:
    """Always on when the metric exists; asked for explicitly, its absence fails as well."""
    gate, metric = "max_negative_control_confirmed_rate", CONFIRMED_NEGATIVES
    asked = request.max_negative_control_confirmed_rate
    value = _figure(aggregate.get(metric))
    if value is None and asked is None:
        verdict.observed[metric] = None
        return
    if value is not None:
        verdict.checked.append(metric)
    limit = _DEFAULT_NEGATIVE_LIMIT if asked is None else asked
    verdict.decide(gate, metric, value, lambda v: v <= limit, f"at most {limit}")


def _judge_paired(
    verdict: Verdict, request: GateRequest, paired: Mapping[str, Any], noise_floor_kl: float | None
) -> None:
    if (limit := request.max_negative_control_speedup_deviation) is not None:
        metric = "negative_control_ttft_speedup_median"
        value = _figure(paired.get(metric))
        gate = "max_negative_control_speedup_deviation"
        verdict.decide(gate, metric, value, lambda v: abs(v - 1.0) <= limit, f"within {limit} of 1")
    if (allowed := request.max_warm_vs_cold_kl) is not None:
        metric = "warm_vs_cold_mean_kl_topk"
        bound = allowed + (noise_floor_kl or 0.0)
        wanted = f"at most {allowed}" + (
            f" above the noise floor {noise_floor_kl}" if noise_floor_kl is not None else ""
        )
        verdict.decide("max_warm_vs_cold_kl", metric, _figure(paired.get(metric)), lambda v: v <= bound, wanted)
    if request.require_contamination_check:
        _judge_contamination(verdict, paired)


def _judge_contamination(verdict: Verdict, paired: Mapping[str, Any]) -> None:
    """Every pair's cold arm must have been checked, and the contaminated ones must be out of the clean pairs."""
    names = ("pairs", "contamination_checked_pairs", "flush_contaminated_pairs", "clean_pairs")
    figures = {name: _figure(paired.get(name)) for name in names}
    verdict.observed.update(figures)
    pairs, checked, contaminated, clean = figures.values()
    if pairs is None or checked is None or contaminated is None or clean is None or not pairs:
        complaint = "require_contamination_check: the result holds no pairs with a contamination check"
        verdict.lack("contamination_checked_pairs", complaint)
        return
    if checked != pairs:
        verdict.failures.append(f"require_contamination_check: {checked:.0f} of {pairs:.0f} pairs were checked")
    if clean != pairs - contaminated:
        verdict.failures.append(
            f"require_contamination_check: {clean:.0f} clean pairs of {pairs:.0f} with {contaminated:.0f} contaminated"
        )
    if spread := _figure(paired.get("propagation_contamination_rate")):
        verdict.failures.append(f"require_contamination_check: propagation_contamination_rate is {spread}")


def _judge_engine(verdict: Verdict, request: GateRequest, engine: EngineEvidence | None) -> None:
    if request.require_no_engine_errors:
        errors = None if engine is None else engine.errors
        verdict.decide("require_no_engine_errors", "errors", errors, lambda v: v == 0, "0")


def _judge_reuse(
    verdict: Verdict,
    request: GateRequest,
    engine: EngineEvidence | None,
    evidence: object,
    rows: Sequence[RequestRow],
) -> None:
    gate = "require_materialized_reuse"
    both = None if engine is None else engine.joined_requests
    joined = None if both is None else requests_of_result(both, {row.item_id for row in rows})
    if engine is not None:
        verdict.observed["joined_requests"] = None if joined is None else len(joined)
        if engine.claims_reuse and not both:
            verdict.failures.append(
                "an engine summary claims materialized_semantic_kv_reuse, but no request has both a semantic hit and a "
                "materialization in its events"
            )
    if not request.require_materialized_reuse:
        return
    if evidence not in LIVE:
        verdict.failures.append(f"{gate}: the result's evidence is {evidence!r}, and only a live run can show reuse")
    elif joined is None:
        verdict.lack("joined_requests", f"{gate}: no engine summary lists its events per request, so nothing joins")
    elif not both:
        verdict.failures.append(f"{gate}: no request has both a semantic hit and a materialization")
    elif not joined:
        verdict.failures.append(
            f"{gate}: {len(both)} requests have a semantic hit and a materialization ({both[0]} first), but none is "
            "clearly a request of this result"
        )
