"""A verdict of ``assert-result-gates`` as table rows: the limit, the figure, and whether the gate passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sembase.onepage.formats import NOT_MEASURED, count, fraction
from sembench.gates.table import GATES
from sembench.report.formats import nats, percent, plain, ratio

State = Literal["pass", "fail", "missing"]

_WORDS: Final = {gate.figure: gate.words for gate in GATES if gate.words} | {
    "reused_quality_pass_rate": "answers with reused KV that pass the quality check",
    "negative_control_confirmed_reuse_rate": "negative controls with confirmed reuse",
    "reused_warm_vs_cold_mean_kl_topk": "mean KL where KV was reused",
    "worst_transform_warm_vs_cold_mean_kl_topk": "mean KL of the worst transform",
    "hit_only_ttft_speedup_n": "clean pairs with confirmed reuse",
    "unverified_planned_token_rate": "planned tokens that are not the donor's",
    "changed_token_planned_rate": "changed facts planned",
    "negative_control_semantic_eligible_block_rate": "eligible blocks of negative controls",
}


@dataclass(frozen=True, slots=True)
class GateRow:
    name: str
    words: str
    wanted: str
    found: str
    basis: str
    state: State


def gate_rows(verdict: Mapping[str, Any]) -> list[GateRow]:
    gates = verdict.get("gates")
    if isinstance(gates, list):
        return [_row(gate) for gate in gates if isinstance(gate, Mapping) and not _is_quiet(gate)]
    requested = verdict.get("requested_gates")
    return [_asked(name, limit, verdict) for name, limit in requested.items()] if isinstance(requested, Mapping) else []


def _is_quiet(gate: Mapping[str, Any]) -> bool:
    """Passed must-be-zero figures are left out: they have a table of their own."""
    return gate.get("gate") == "must_be_zero" and gate.get("passed") is True


def _row(gate: Mapping[str, Any]) -> GateRow:
    metric = str(gate.get("metric"))
    value = _number(gate.get("value"))
    passed = gate.get("passed") is True
    state: State = "pass" if passed and value is not None else "fail" if not passed else "missing"
    wanted = str(gate.get("wanted", ""))
    return GateRow(
        str(gate.get("gate")), _in_words(metric), wanted, _written(metric, value), _basis(metric, gate), state
    )


def _asked(name: str, limit: object, verdict: Mapping[str, Any]) -> GateRow:
    """For a verdict without a list of judged gates: requested limits and failures are still known."""
    failed = any(str(failure).startswith(f"{name}:") for failure in verdict.get("failures") or [])
    wanted = "required" if limit is True else plain(limit)
    return GateRow(name, name.replace("_", " "), wanted, "see the verdict", "", "fail" if failed else "pass")


def _basis(metric: str, gate: Mapping[str, Any]) -> str:
    """The basis of the figure: numerator and denominator, interval, n."""
    parts = []
    numerator, denominator = _number(gate.get("numerator")), _number(gate.get("denominator"))
    if numerator is not None and denominator is not None:
        parts.append(fraction(numerator, denominator))
    interval = gate.get("ci95")
    if isinstance(interval, Sequence) and not isinstance(interval, str) and len(interval) == 2:
        parts.append(f"[{', '.join(_written(metric, _number(end)) for end in interval)}]")
    if (n := _number(gate.get("n"))) is not None:
        parts.append(f"n = {n:,.0f}")
    return ", ".join(parts)


def _in_words(metric: str) -> str:
    return _WORDS.get(metric, metric.replace("_", " "))


def _written(metric: str, value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    if metric.endswith("_n"):
        return count(value)
    if "speedup" in metric or "overhead" in metric:
        return ratio(value)
    if "_kl" in metric:
        return nats(value)
    if metric.endswith(("_rate", "_lift", "_rate_by_request", "_share")):
        return percent(value)
    return count(value) if value == int(value) else plain(value)


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
