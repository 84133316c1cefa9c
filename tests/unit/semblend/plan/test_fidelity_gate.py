"""The last gate: shapes, the guard's verdicts, measured answers, rounded borders."""

from __future__ import annotations

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
from semblend.contract.answer_budgets import AnswerBudgets, Budget, Trial
from semblend.contract.shape import MOVED_SHARE
from semblend.plan.fidelity import AnswerLimit, FidelityGate
from semblend.plan.gates import Gates, Prompt, decide


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


def test_a_gate_without_parts_passes_a_plan_unchanged_but_for_what_the_request_asks() -> None:
    assert FidelityGate().judge(REORDERED, "m") is REORDERED
    asked = FidelityGate().judge(REORDERED, "m", 0.3)
    assert isinstance(asked, ReusePlan)
    assert asked == replace(REORDERED, recompute_fraction=0.3)


class Off:
    def why_off(self, model: str, shape: PlanShape) -> str | None:
        return "mean KL 0.4" if (model, shape) == ("m", PlanShape.REORDER) else None


def test_a_class_the_guard_turned_off_is_declined_whatever_the_request_asks() -> None:
    gate = FidelityGate(Off())
    for share in (None, 0.3):
        declined = gate.judge(REORDERED, "m", share)
        assert isinstance(declined, Decline)
        assert (declined.reason, declined.detail) == (DeclineReason.GUARD_OFF_REORDER, "mean KL 0.4")
    assert isinstance(gate.judge(REORDERED, "another"), ReusePlan)


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


def measured(*budgets: Budget) -> AnswerBudgets:
    return AnswerBudgets("m", None, "vllm", None, budgets)


def budget(shape: PlanShape, *lost: int, up_to: int = 10_000, shortest: int = 64) -> Budget:
    return Budget(shape, 0, up_to, shortest, tuple(Trial(0.1 * (n + 1), 100, 100, each) for n, each in enumerate(lost)))


NEW = plan(run("a", 0, 10, share=0.1))


def limit(*budgets: Budget, max_loss: float = 0.02) -> FidelityGate:
    return FidelityGate(answers=AnswerLimit(measured(*budgets), max_loss))


def test_a_measured_class_recomputes_the_smallest_fraction_that_kept_its_answers() -> None:
    gate = limit(budget(PlanShape.NEW_INSTRUCTION, 4, 1, 0))
    judged = gate.judge(NEW, "m")
    assert isinstance(judged, ReusePlan)
    assert judged.recompute_fraction == 0.2
    asked = gate.judge(NEW, "m", 0.0)
    assert isinstance(asked, ReusePlan)
    assert asked.recompute_fraction == 0.0


def test_a_class_that_lost_answers_at_every_fraction_is_declined_and_the_nearest_one_named() -> None:
    declined = limit(budget(PlanShape.NEW_INSTRUCTION, 9, 4, 5)).judge(NEW, "m")
    assert isinstance(declined, Decline)
    assert declined.reason is DeclineReason.QUALITY_GATE
    assert "0.2 recomputed: 4 of 100 answers were lost and 0 gained when it was measured" in declined.detail
    assert "likely loss 0.055" in declined.detail


def test_what_was_not_measured_is_left_to_the_defaults() -> None:
    for gate in (limit(), limit(budget(PlanShape.EDIT, 9)), limit(budget(PlanShape.NEW_INSTRUCTION, 9, up_to=100))):
        assert gate.judge(NEW, "m") == NEW
    exact = replace(NEW, runs=tuple(replace(each, risk=ContextRisk(0, 0, 0.0)) for each in NEW.runs))
    assert exact.runs[0].is_exact
    assert limit(budget(PlanShape.NEW_INSTRUCTION, 9)).judge(exact, "m") == exact, "nothing can change its answer"


def test_where_nothing_can_be_recomputed_only_what_lost_its_answers_anyway_is_declined() -> None:
    needs, failed = (limit(budget(PlanShape.NEW_INSTRUCTION, *lost)).without_budget() for lost in ((9, 0), (9, 9)))
    assert needs.judge(NEW, "m") == NEW
    assert isinstance(failed.judge(NEW, "m"), Decline)


def test_a_class_that_is_slower_than_cold_says_so() -> None:
    slow = Budget(PlanShape.NEW_INSTRUCTION, 0, 10_000, 0, (Trial(0.1, 50, 50, 0, speedup=0.97),))
    declined = limit(slow).judge(NEW, "m")
    assert isinstance(declined, Decline)
    assert "slower than cold" in declined.detail
    assert "0.97" in declined.detail


def test_moved_runs_need_a_measured_budget_of_their_class() -> None:
    gates = Gates(max_context_share=1.0, min_moved_tokens=640)
    assert FidelityGate().limits(REORDERED, gates) == gates
    assert limit().limits(REORDERED, gates) == Gates(max_context_share=MOVED_SHARE)
    assert limit(budget(PlanShape.REORDER, 9)).limits(REORDERED, gates).min_moved_tokens == 0
    kept = limit(budget(PlanShape.REORDER, 9, 0))
    least = [kept.limits(REORDERED, Gates(min_moved_tokens=n)).min_moved_tokens for n in (10, 640)]
    assert least == [64, 640]
    judged = kept.judge(REORDERED, "m")
    assert isinstance(judged, ReusePlan)
    assert judged.recompute_fraction == 0.2
    assert limit(budget(PlanShape.REORDER, 0, up_to=9_999)).limits(REORDERED, gates).min_moved_tokens == 0


def test_a_moved_run_in_order_needs_both_classes_and_gets_the_larger_fraction() -> None:
    alone = plan(run("a", 0, 10, share=0.9))
    reorder, composition = budget(PlanShape.REORDER, 0), budget(PlanShape.COMPOSITION, 2, 1, shortest=100)
    assert limit(reorder, budget(PlanShape.NEW_INSTRUCTION, 0)).limits(alone, Gates()).min_moved_tokens == 0
    both = limit(reorder, composition)
    assert both.limits(alone, Gates()).min_moved_tokens == 100
    judged = both.judge(alone, "m")
    assert isinstance(judged, ReusePlan)
    assert judged.recompute_fraction == 0.2
    apart = limit(budget(PlanShape.REORDER, 0, 9), budget(PlanShape.COMPOSITION, 9, 0))
    assert apart.limits(alone, Gates()).min_moved_tokens == 0
    declined = apart.judge(alone, "m")
    assert isinstance(declined, Decline)
    assert "no measured fraction keeps" in declined.detail
