"""The last gate: shapes, the smallest budget under the ceiling, the guard's verdicts, rounded borders."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from semblend.contract import (
    ContextRisk,
    Decline,
    DeclineReason,
    PlanShape,
    ReusePlan,
    Run,
    TokenRange,
    guard_off,
    risk_of_runs,
    shape_of,
)
from semblend.plan.deviation_curve import encode_calibration, preset_curve
from semblend.plan.fidelity import Ceiling, FidelityGate
from semblend.plan.gates import Gates, Prompt, decide
from semblend.plan.prediction import Calibration, Law, decode_prediction, encode_prediction

CURVE = preset_curve("llama", 4)
LAW = Law(scale=0.2, decay=5.0, factor=1.5, items=20, largest_risk=0.9)
CALIBRATION = Calibration(CURVE, 0.002, 0.9, "first token, 20 likeliest", {PlanShape.REORDER: LAW})


def run(donor: str, donor_start: int, target_start: int, length: int = 64, share: float = 0.5) -> Run:
    return Run(donor, donor_start, target_start, length, ContextRisk(100, 50, share))


def plan(*runs: Run) -> ReusePlan:
    claimed = tuple(TokenRange(each.target_start, each.target_end) for each in runs)
    return ReusePlan(10_000, 0, claimed, runs, ())


REORDERED = plan(run("a", 500, 100), run("a", 100, 300))


@pytest.mark.parametrize(
    ("runs", "shape"),
    [
        ([run("a", 0, 10)], PlanShape.NEW_INSTRUCTION),
        ([run("a", 0, 10), run("a", 80, 100)], PlanShape.EDIT),
        ([run("a", 80, 100), run("a", 200, 10)], PlanShape.REORDER),
        ([run("a", 0, 10), run("b", 80, 100)], PlanShape.COMPOSITION),
    ],
)
def test_a_class_is_the_shape_of_a_plan(runs: list[Run], shape: PlanShape) -> None:
    assert shape_of(runs) is shape
    assert guard_off(shape).value == f"guard_off:{shape.value}"


def test_risk_is_weighed_by_tokens() -> None:
    assert risk_of_runs([run("a", 0, 0, 300, 0.2), run("a", 0, 400, 100, 1.0)]) == pytest.approx(0.4)


@given(st.floats(0, 0.9), st.floats(1e-4, 0.5), st.floats(0, 1))
def test_the_smallest_budget_that_keeps_the_prediction_under_the_ceiling(
    risk: float, ceiling: float, most: float
) -> None:
    share = CALIBRATION.min_fraction(PlanShape.REORDER, risk, ceiling, most)
    at_most = CALIBRATION.predicted_kl(PlanShape.REORDER, risk, most)
    assert at_most is not None
    if share is None:
        assert at_most > ceiling * (1 - 1e-6)
        return
    predicted = CALIBRATION.predicted_kl(PlanShape.REORDER, risk, share)
    assert predicted is not None
    assert predicted <= ceiling
    assert 0.0 <= share <= most
    if share > 1e-3:
        less = CALIBRATION.predicted_kl(PlanShape.REORDER, risk, share * 0.99)
        assert less is not None
        assert less > ceiling


def test_the_gate_spends_or_declines() -> None:
    gate = FidelityGate(ceiling=Ceiling(CALIBRATION, 0.02))
    spent = gate.judge(REORDERED, "m")
    assert isinstance(spent, ReusePlan)
    room = 0.02 / 1.5 - 0.002
    assert spent.recompute_fraction == pytest.approx(math.log(0.1 / room) / 5.0)
    assert spent.predicted_kl == pytest.approx(0.02)
    assert spent.runs == REORDERED.runs
    tight = FidelityGate(ceiling=Ceiling(CALIBRATION, 0.004)).judge(REORDERED, "m")
    assert isinstance(tight, Decline)
    assert tight.reason is DeclineReason.QUALITY_GATE
    assert "predicted KL" in tight.detail
    unmeasured = gate.judge(plan(run("a", 0, 10)), "m")
    assert isinstance(unmeasured, Decline)
    assert unmeasured.reason is DeclineReason.NOT_CALIBRATED
    assert "no law for this class" in unmeasured.detail
    riskier = gate.judge(plan(run("a", 500, 100, share=0.95), run("a", 100, 300, share=0.95)), "m")
    assert isinstance(riskier, Decline)
    assert riskier.reason is DeclineReason.NOT_CALIBRATED
    assert "reorder at risk 0.950: the calibration reaches 0.900; run kvmend calibrate with" in riskier.detail
    asked = FidelityGate(ceiling=Ceiling(CALIBRATION, 0.004)).judge(REORDERED, "m", 0.3)
    assert isinstance(asked, ReusePlan)
    assert (asked.recompute_fraction, asked.predicted_kl) == (0.3, None)
    assert FidelityGate().judge(REORDERED, "m") is REORDERED


class Off:
    def why_off(self, model: str, shape: PlanShape) -> str | None:
        return "mean KL 0.4" if (model, shape) == ("m", PlanShape.REORDER) else None


def test_a_class_the_guard_turned_off_is_declined_whatever_the_request_asks() -> None:
    gate = FidelityGate(Off(), Ceiling(CALIBRATION, 0.02))
    for share in (None, 0.3):
        declined = gate.judge(REORDERED, "m", share)
        assert isinstance(declined, Decline)
        assert (declined.reason, declined.detail) == (DeclineReason.GUARD_OFF_REORDER, "mean KL 0.4")
    assert isinstance(gate.judge(REORDERED, "another"), ReusePlan)


def test_calibration_files_of_both_versions_are_read() -> None:
    assert decode_prediction(encode_prediction(CALIBRATION)) == CALIBRATION
    named = replace(CALIBRATION, policy="question")
    assert decode_prediction(encode_prediction(named)) == named
    old = decode_prediction(encode_calibration(CURVE))
    assert (old.curve, dict(old.laws)) == (CURVE, {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"scale"', '"scales"'),
        ('"reorder"', '"shuffle"'),
        ("0.002", "-1"),
        ("0.2", '"0,2"'),
        ('"laws"', '"law"'),
        ("null", "7"),
    ],
)
def test_damaged_calibrations_are_refused(old: str, new: str) -> None:
    text = encode_prediction(CALIBRATION)
    assert old in text
    with pytest.raises(ConfigurationError, match="calibration"):
        decode_prediction(text.replace(old, new))


@given(st.integers(1, 64), st.integers(0, 200), st.integers(1, 400), st.sampled_from([0, 16]))
def test_borders_are_rounded_inward(multiple: int, start: int, length: int, boundary: int) -> None:
    pieces = np.array([[0, 7, start, length, 0]], np.int64)
    gates = Gates(min_reuse_ratio=0.0, boundary_multiple_tokens=multiple, boundary_recompute_tokens=boundary)
    risk = ContextRisk(max(start, 7), max(start, 7), 0.9)
    found = decide(Prompt(1000, 0), pieces, [risk], ["d"], gates, strict_prefix_boundary=True)
    if isinstance(found, Decline):
        assert length < 2 * multiple + boundary + gates.min_fragment_tokens
        return
    (kept,) = found.runs
    if multiple > 1:
        assert kept.target_start % multiple == kept.target_end % multiple == 0
    assert start <= kept.target_start < kept.target_end <= start + length
    assert kept.shift == start - 7


def test_a_multiple_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        Gates(boundary_multiple_tokens=0)
