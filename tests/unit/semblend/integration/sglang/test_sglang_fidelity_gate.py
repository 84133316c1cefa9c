"""The SGLang tracker asks the last gate, and recomputed tokens are never counted as reused."""

from __future__ import annotations

import numpy as np
from tests.unit.semblend.integration.sglang.trackers import OPEN, TrackerBench, words

from semblend.contract import DeclineReason, Materialized, PlanShape, TokenRange
from semblend.contract.answer_budgets import AnswerBudgets, Budget, Trial
from semblend.integration.hints import Hints
from semblend.integration.sglang.options import SglangOptions
from semblend.integration.sglang.request_tracker import meta_info
from semblend.plan.fidelity import AnswerLimit, FidelityGate
from semblend.plan.gates import Gates
from semblend.plan.reuse_cost import ReuseCost, Work, pass_work
from semblend.plan.selection import SHORT_PROMPT_FRACTION

LOST, KEPT = (
    FidelityGate(answers=AnswerLimit(AnswerBudgets("m", None, "sglang", None, (budget,)), 0.02))
    for budget in (Budget(PlanShape.NEW_INSTRUCTION, 0, 4096, 0, (Trial(0.2, 50, 50, lost),)) for lost in (9, 0))
)


class Off:
    def why_off(self, model: str, shape: PlanShape) -> str | None:
        return f"{model} drifts" if shape is PlanShape.NEW_INSTRUCTION else None


def bench(gate: FidelityGate | None = None, *, can_recompute: bool = True, share: float | None = None) -> TrackerBench:
    options = SglangOptions(gates=OPEN, refresh_on_repeat=False, recompute_fraction=share)
    made = TrackerBench(options=options, fidelity=gate or FidelityGate(), can_recompute=can_recompute)
    made.serve_cold("donor", np.concatenate([words(9, 30), words(1, 800), words(8, 20)]))
    return made


PROMPT = np.concatenate([words(2, 150), words(1, 800), words(3, 40)])


def test_hint_measured_budget_option_and_the_usual_share_in_this_order() -> None:
    for made, hints, expected in (
        (bench(), Hints(), SHORT_PROMPT_FRACTION),
        (bench(share=0.3), Hints(), 0.3),
        (bench(share=0.3), Hints(recompute_fraction=0.1), 0.1),
        (bench(can_recompute=False, share=0.3), Hints(recompute_fraction=0.1), 0.0),
    ):
        assert made.ask("r", PROMPT, hints=hints) > 0
        plan = made.record("r").plan
        assert plan is not None
        assert plan.recompute_fraction == expected
    made = bench(KEPT, share=0.3)
    assert made.ask("r", PROMPT) > 0
    plan = made.record("r").plan
    assert plan is not None
    assert plan.recompute_fraction == 0.2


def test_what_lost_its_answers_or_was_turned_off_is_declined() -> None:
    for gate, can_recompute, reason in (
        (LOST, False, DeclineReason.QUALITY_GATE),
        (FidelityGate(Off()), True, DeclineReason.GUARD_OFF_NEW_INSTRUCTION),
    ):
        made = bench(gate, can_recompute=can_recompute)
        assert made.ask("r", PROMPT) == 0
        decline = made.record("r").decline
        assert decline is not None
        assert decline.reason is reason


def test_chosen_tokens_are_computed_and_not_reused() -> None:
    made = bench(share=0.25)
    made.ask("r", PROMPT)
    record = made.record("r")
    plan = record.plan
    assert plan is not None
    made.tracker.loaded(record)
    made.tracker.confirmed(record, 1.0, 2.0, recomputed_tokens=plan.max_recomputed_tokens, selected_by="first")
    info = meta_info(record)
    assert info["reused_tokens"] == plan.reused_tokens - int(0.25 * plan.reused_tokens)
    assert info["reused_tokens"] + info["computed_tokens"] == plan.claimed_tokens
    assert (info["class"], info["compute_share"]) == ("new_instruction", 0.25)
    assert info["selected_by"] == "first"
    event = next(event for event in made.events if isinstance(event, Materialized))
    assert (event.reused_tokens, event.computed_tokens) == (info["reused_tokens"], info["computed_tokens"])


def test_a_plan_that_takes_longer_than_prefill_is_declined_unless_the_ratio_is_zero() -> None:
    probe = [pass_work([shape]) for shape in (TokenRange(0, 128), TokenRange(0, 16), TokenRange(3968, 4096))]
    for ratio, served in ((0.01, False), (0.0, True)):
        cost = ReuseCost([(work, 1e3 + work.tokens / 10) for work in probe])
        options = SglangOptions(gates=Gates(min_run_tokens=32, min_reuse_ratio=ratio), refresh_on_repeat=False)
        made = TrackerBench(options=options, can_recompute=True, cost=cost)
        made.serve_cold("donor", np.concatenate([words(9, 30), words(1, 800), words(8, 20)]))
        assert (made.ask("r", PROMPT) > 0) == served
        decline = made.record("r").decline
        assert (decline is None) == served
        assert decline is None or decline.reason is DeclineReason.NOT_WORTH


def test_a_served_plan_teaches_what_it_took() -> None:
    made = bench(share=0.25)
    made.cost = made.tracker._cost = ReuseCost(
        [(pass_work([TokenRange(0, tokens)]), 1.0 + tokens) for tokens in (128, 16)]
    )
    assert made.ask("r", PROMPT) > 0
    load = Work(loaded=100.0, runs=1.0)
    before = made.cost.ms(load)
    record = made.record("r")
    made.tracker.loaded(record)
    made.tracker.confirmed(record, 10.0, 1e6, recomputed_tokens=200)
    assert made.cost.ms(load) > before
