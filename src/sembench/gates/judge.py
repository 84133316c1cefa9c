"""Applies the requested gates and those that are always on. In: a result, its rows, evidence. Out: a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sembench.gates.answer_gates import judge_answers
from sembench.gates.calibration import NoiseFloor
from sembench.gates.engine_summary import EngineEvidence
from sembench.gates.integrity import LIVE, integrity_failures, quality_threshold
from sembench.gates.other_run import OtherRun
from sembench.gates.paired_gates import judge_pairs
from sembench.gates.request import GateRequest
from sembench.gates.reuse_gates import judge_reuse
from sembench.gates.stock_gate import judge_stock
from sembench.gates.table import AGGREGATE
from sembench.gates.verdict import Measured, Verdict, measured_in
from sembench.metrics.rows import RequestRow
from sembench.must_be_zero import CONFIRMED_NEGATIVES, MUST_BE_ZERO, REUSING_NEGATIVES

_QUALITY: Final = "min_quality_pass_rate"
_NEGATIVES: Final = "max_negative_control_confirmed_rate"


def judge(
    result: Mapping[str, Any],
    rows: Sequence[RequestRow],
    engine: EngineEvidence | None,
    request: GateRequest,
    noise_floor: NoiseFloor | None = None,
    stock: OtherRun | None = None,
    floor: OtherRun | None = None,
) -> Verdict:
    verdict = Verdict(request, failures=integrity_failures(result, rows))
    aggregate = result["aggregate"]
    for gate in AGGREGATE:
        verdict.judge(gate.name, measured_in(aggregate, gate.figure))
    _judge_zeros(verdict, rows)
    _judge_quality_of_reuse(verdict, result)
    _judge_noise_floor(verdict, result, noise_floor)
    judge_pairs(verdict, result, rows, noise_floor)
    judge_answers(verdict, result, rows, floor)
    judge_stock(verdict, result, rows, stock)
    _judge_engine_errors(verdict, engine)
    judge_reuse(verdict, engine, result, rows)
    return verdict


def _judge_noise_floor(verdict: Verdict, result: Mapping[str, Any], floor: NoiseFloor | None) -> None:
    if floor is None:
        return
    gate = "noise_floor_calibration"
    verdict.failures += [f"{gate}: {message}" for message in floor.mismatches(result)]
    if floor.mean_kl is None and "max_warm_vs_cold_kl" in verdict.request.requested:
        verdict.lack("mean_kl_topk", f"{gate}: the calibration holds no mean_kl_topk")
    if floor.ttft_ratio_high is None and "min_blended_ttft_speedup" in verdict.request.requested:
        verdict.lack("ttft_ratio_median_ci95", f"{gate}: the calibration holds no ttft_ratio_median_ci95")


def _judge_zeros(verdict: Verdict, rows: Sequence[RequestRow]) -> None:
    """Always judged if measured. Only the limit on confirmed reuse of negative controls can be changed."""
    has_other_limit = bool(verdict.request.limit(_NEGATIVES))
    for check in MUST_BE_ZERO:
        figure = check.measure(rows)
        measured = Measured(None)
        if figure is not None:
            measured = Measured(figure.value, figure.n, figure.numerator, figure.denominator)
            verdict.checked.append(check.name)
        if check.name == CONFIRMED_NEGATIVES:
            _judge_negatives(verdict, measured)
        elif figure is None or (check.name == REUSING_NEGATIVES and has_other_limit):
            verdict.observed[check.name] = measured.value  # a limit that allows blocks allows their requests, too
        else:
            verdict.decide("must_be_zero", check.name, measured, lambda v: v == 0, f"0{check.first_culprit(rows)}")


def _judge_negatives(verdict: Verdict, measured: Measured) -> None:
    """Always judged if measured. If the gate was requested, a missing figure fails as well."""
    if measured.value is None and _NEGATIVES not in verdict.request.requested:
        verdict.observed[CONFIRMED_NEGATIVES] = None
    else:
        verdict.judge(_NEGATIVES, measured)


def _judge_quality_of_reuse(verdict: Verdict, result: Mapping[str, Any]) -> None:
    """Answers without reuse keep their quality anyway, so the gate also judges the reused ones alone."""
    threshold, aggregate = quality_threshold(result), result["aggregate"]
    verdict.observed["quality_threshold"] = threshold
    is_measured = result["run"].get("evidence") in LIVE and aggregate.get("quality_pass_rate") is not None
    if not is_measured or _QUALITY not in verdict.request.requested:
        return
    if threshold is None or threshold <= 0:
        message = f"config.quality_threshold is {threshold!r}, so passing says nothing about an answer"
        verdict.fail(_QUALITY, "quality_threshold", "above 0", message)
    metric = "reused_quality_pass_rate"
    why = "has no requests: no scored answer has confirmed reuse, so it says nothing about reuse"
    verdict.judge(_QUALITY, measured_in(aggregate, metric), figure=metric, why_missing=why)


def _judge_engine_errors(verdict: Verdict, engine: EngineEvidence | None) -> None:
    if "require_no_engine_errors" in verdict.request.requested:
        errors = Measured(None if engine is None else engine.errors)
        verdict.decide("require_no_engine_errors", "errors", errors, lambda v: v == 0, "0")
