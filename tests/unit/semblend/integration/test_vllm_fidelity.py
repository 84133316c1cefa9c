"""The vLLM look-up asks the last gate, and what a request wishes for reaches its plan and its provenance."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from tests.unit.semblend.integration.vllm_fakes import config

from semblend.contract import ContextRisk, Decline, DeclineReason, PlanShape, ReusePlan, Run, TokenRange
from semblend.contract.answer_budgets import AnswerBudgets, Budget, Trial
from semblend.integration.claims import with_recompute_fraction
from semblend.integration.core.provenance import provenance
from semblend.integration.hints import Hints, read_hints
from semblend.integration.vllm.look_up import Capabilities, LookUp
from semblend.integration.vllm.namespace import deployment_namespace, request_namespace
from semblend.integration.vllm.options import ConnectorOptions
from semblend.integration.vllm.request_record import VllmRequest
from semblend.pipeline.planner import Planner
from semblend.plan.fidelity import OPEN, AnswerLimit, FidelityGate
from semblend.plan.gates import Gates, gaps_before
from semblend.plan.reuse_cost import ReuseCost, pass_work
from semblend.plan.selection import MAX_QUESTION_TOKENS, default_recompute_fraction
from semblend.settings import Settings

DOCUMENT = np.random.default_rng(3).integers(0, 50_000, 900).astype(np.uint32)


class Off:
    def why_off(self, model: str, shape: PlanShape) -> str | None:
        return f"{model} drifts" if (model, shape) == ("adapter", PlanShape.NEW_INSTRUCTION) else None


POLICY = ConnectorOptions().recompute_policy
ABLE = Capabilities("", True, 1, 16, 16, 4096, 100, "base")


def answered(
    gate: FidelityGate = OPEN,
    hints: Hints | None = None,
    lora: str | None = None,
    can: Capabilities = ABLE,
    recompute_fraction: float | None = 0.0,
    tail_tokens: int = 9,
    gates: Gates = Gates(),  # noqa: B008  (frozen)
    body: NDArray[np.uint32] = DOCUMENT,
    cost: ReuseCost | None = None,
) -> tuple[Any, VllmRequest]:
    options = ConnectorOptions(refresh_on_repeat=False, recompute_fraction=recompute_fraction, gates=gates)
    planner = Planner(settings=Settings(embedder="none"), gates=options.gates, budget_bytes=1 << 22)
    namespace = request_namespace(deployment_namespace(config(), "layout"), None, None, require_salt=False)
    planner.register("d", np.concatenate([np.arange(30, dtype=np.uint32), DOCUMENT]), namespace)
    look_up = LookUp(options, planner, None, can, gate, cost)
    request: Any = SimpleNamespace(
        request_id="r",
        mm_features=None,
        prompt_embeds=None,
        pooling_params=None,
        resumable=False,
        skip_reading_prefix_cache=False,
        lora_request=None if lora is None else SimpleNamespace(lora_name=lora),
    )
    tokens = np.concatenate([np.arange(100, 200, dtype=np.uint32), body, np.arange(tail_tokens, dtype=np.uint32)])
    record = VllmRequest("r", tokens, namespace, hints or Hints(), request=request)
    with planner:
        return look_up.answer(record, 0), record


def measured_answers(lost: int = 0, fraction: float = 0.2) -> FidelityGate:
    """A gate whose only class is that of the plans here, measured with one fraction."""
    budget = Budget(PlanShape.NEW_INSTRUCTION, 0, 4096, 0, (Trial(fraction, 50, 50, lost),))
    return FidelityGate(answers=AnswerLimit(AnswerBudgets("m", None, "vllm", None, (budget,)), 0.02))


def test_the_measured_budget_becomes_that_of_the_plan() -> None:
    plan, record = answered(measured_answers())
    assert isinstance(plan, ReusePlan)
    assert plan.recompute_fraction == 0.2
    selection = ConnectorOptions().selection(plan.recompute_fraction)
    assert selection is not None
    assert selection.fraction == plan.recompute_fraction
    record.plan, record.runs, record.is_accepted, record.is_confirmed = plan, plan.runs, True, True
    record.selected_by = "first"
    reported = provenance(record, is_confirmed=True)
    assert reported["class"] == "new_instruction"
    assert 0.0 < reported["context_risk"] < 1.0
    assert (reported["compute_share"], reported["selected_by"]) == (0.2, "first")


def test_a_plan_without_a_budget_gets_the_deployments_own() -> None:
    assert answered()[0].recompute_fraction == 0.0
    assert answered(recompute_fraction=0.3)[0].recompute_fraction == 0.3
    assert answered(hints=Hints(recompute_fraction=0.0), recompute_fraction=0.3)[0].recompute_fraction == 0.0
    assert ConnectorOptions().selection(0.0) is None
    assert (
        answered(recompute_fraction=None)[0].recompute_fraction == default_recompute_fraction(answered()[0].runs) > 0.0
    )


def test_where_the_policy_cannot_be_asked_no_budget_is_counted_on() -> None:
    """Where a long new text follows the claim there is no question, and another policy would choose."""
    assert answered(measured_answers())[0].recompute_fraction == 0.2
    assert answered(measured_answers(), tail_tokens=MAX_QUESTION_TOKENS + 1)[0].recompute_fraction == 0.0
    assert answered(recompute_fraction=None, tail_tokens=MAX_QUESTION_TOKENS + 1)[0].recompute_fraction == 0.0
    assert answered(recompute_fraction=0.3, tail_tokens=MAX_QUESTION_TOKENS + 1)[0].recompute_fraction == 0.3


def test_a_moved_run_is_reused_only_where_tokens_are_selected_by_a_question() -> None:
    gates = Gates(max_context_share=0.05, min_moved_tokens=900)  # the document has more differing context than that
    assert isinstance(answered(gates=gates)[0], ReusePlan)
    declined = answered(gates=gates, tail_tokens=MAX_QUESTION_TOKENS + 1)[0]
    assert isinstance(declined, Decline)
    assert (declined.reason, "needs a question" in declined.detail) == (DeclineReason.CONTEXT_RISK, True)
    wide = replace(gates, max_context_share=1.0)
    assert isinstance(answered(gates=wide, tail_tokens=MAX_QUESTION_TOKENS + 1)[0], ReusePlan)


def test_moved_runs_that_are_refused_do_not_count_as_inexact_tokens() -> None:
    """The end of the document is moved and no question follows it; its beginning is allowed, but too short."""
    gates = Gates(max_context_share=0.6, min_moved_tokens=600, min_inexact_tokens=600)
    body = np.concatenate([DOCUMENT[:200], np.full(1500, 7, np.uint32), DOCUMENT[200:]])
    declined = answered(gates=gates, body=body, tail_tokens=MAX_QUESTION_TOKENS + 1)[0]
    assert isinstance(declined, Decline)
    assert declined.reason == "too_few_inexact"
    assert declined.detail == "200 tokens after differing context; min_inexact_tokens is 600"


def test_without_a_sparse_forward_no_fraction_is_counted_on() -> None:
    can = replace(ABLE, sparse_forward=False)
    assert isinstance(answered(measured_answers(lost=9), can=can)[0], Decline)
    assert isinstance(answered(measured_answers())[0], ReusePlan)


def test_several_ranks_recompute_what_one_rank_would() -> None:
    for ranks in (1, 2):
        can = replace(ABLE, ranks=ranks)
        hinted = answered(hints=Hints(recompute_fraction=0.2), can=can, recompute_fraction=0.3)[0]
        assert hinted.recompute_fraction == 0.2
        assert isinstance(answered(measured_answers(), can=can)[0], ReusePlan)


def test_a_share_that_does_not_fit_into_a_step_is_declined() -> None:
    declined, _ = answered(can=replace(ABLE, max_step_tokens=300), recompute_fraction=0.5)
    assert isinstance(declined, Decline)
    assert declined.reason is DeclineReason.CAPACITY
    assert isinstance(answered(can=replace(ABLE, max_step_tokens=300), recompute_fraction=0.1)[0], ReusePlan)


def test_chosen_tokens_are_computed_not_reused() -> None:
    plan, record = answered(recompute_fraction=0.25)
    record.plan, record.runs, record.is_accepted, record.is_confirmed = plan, plan.runs, True, True
    record.recomputed_tokens, record.computed_tokens = (
        plan.max_recomputed_tokens,
        plan.computed_tokens + plan.max_recomputed_tokens,
    )
    reported = provenance(record, is_confirmed=True)
    assert reported["reused_tokens"] + reported["computed_tokens"] == plan.claimed_tokens
    assert reported["reused_tokens"] == plan.reused_tokens - int(0.25 * plan.reused_tokens)


def test_a_class_is_off_for_the_model_it_drifts_in() -> None:
    declined, _ = answered(FidelityGate(Off()), lora="adapter")
    assert isinstance(declined, Decline)
    assert (declined.reason, declined.detail) == (DeclineReason.GUARD_OFF_NEW_INSTRUCTION, "adapter drifts")
    assert isinstance(answered(FidelityGate(Off()))[0], ReusePlan)


def test_a_request_may_choose_its_own_share() -> None:
    plan, _ = answered(measured_answers(lost=9), read_hints({"semblend": {"recompute_fraction": 0.25}}))
    assert isinstance(plan, ReusePlan)
    assert plan.recompute_fraction == 0.25
    for wrong in (True, "0.2", -0.1, 1.1, None):
        assert read_hints({"semblend": {"recompute_fraction": wrong}}).recompute_fraction is None


def test_answers_that_were_lost_keep_moved_passages_out_and_the_runs_behind_them_in() -> None:
    """A moved run in the middle is computed; what follows it in its own context is still reused."""
    gates = Gates(max_context_share=0.35, min_moved_tokens=300)
    runs = tuple(
        Run("d", start, target, 300, ContextRisk(100, 50, share))
        for start, target, share in ((0, 40, 0.1), (700, 400, 0.9), (350, 800, 0.2))
    )
    whole = ReusePlan(1200, 0, (TokenRange(0, 1100),), runs, gaps_before(0, runs))
    lost, kept = (
        FidelityGate(answers=AnswerLimit(AnswerBudgets("m", None, "vllm", None, (measured,)), 0.02))
        for measured in (Budget(PlanShape.REORDER, 0, 4096, 300, (Trial(0.1, 50, 50, each),)) for each in (9, 0))
    )
    options = ConnectorOptions(gates=gates)

    def fitted(gate: FidelityGate, requested: float | None = None) -> ReusePlan:
        found = with_recompute_fraction(
            whole, gate, "m", requested, options, gates, can_recompute=True, max_computed_tokens=4096
        )
        assert isinstance(found, ReusePlan)
        return found

    assert fitted(kept).runs == runs
    assert fitted(kept).recompute_fraction == 0.1
    assert fitted(lost).runs == (runs[0], runs[2])
    assert fitted(lost).compute == (TokenRange(0, 40), TokenRange(340, 800))
    assert fitted(kept, 0.3).recompute_fraction == 0.3
    assert fitted(lost, 0.3).runs == (runs[0], runs[2]), "a request chooses its fraction, and not what is moved"


def test_what_is_left_after_a_short_moved_run_is_judged_as_its_own_class() -> None:
    """Three donors are a composition; the only run that is as long as the measured ones is another class."""
    gates = Gates(max_context_share=0.35, min_moved_tokens=100)
    runs = tuple(
        Run(donor, 0, target, length, ContextRisk(100, 90, 0.9))
        for donor, target, length in (("a", 40, 400), ("b", 450, 120), ("c", 600, 120))
    )
    whole = ReusePlan(800, 0, (TokenRange(0, 720),), runs, gaps_before(0, runs))
    options = ConnectorOptions(gates=gates)

    def fitted(*budgets: Budget) -> ReusePlan | Decline:
        gate = FidelityGate(answers=AnswerLimit(AnswerBudgets("m", None, "vllm", None, budgets), 0.02))
        return with_recompute_fraction(
            whole, gate, "m", None, options, gates, can_recompute=True, max_computed_tokens=4096
        )

    composition = Budget(PlanShape.COMPOSITION, 0, 4096, 300, (Trial(0.1, 50, 50, 0),))
    reorder = Budget(PlanShape.REORDER, 0, 4096, 300, (Trial(0.2, 50, 50, 0),))
    alone = fitted(composition)
    assert isinstance(alone, Decline), "one moved run needs a budget of both classes"
    assert "answers were not measured" in alone.detail
    failed = fitted(composition, structs.replace(reorder, trials=(Trial(0.2, 50, 50, 9),)))
    assert isinstance(failed, Decline)
    assert failed.reason is DeclineReason.QUALITY_GATE
    assert "9 of 50 answers were lost" in failed.detail
    both = fitted(composition, reorder)
    assert isinstance(both, ReusePlan)
    assert (both.runs, both.recompute_fraction) == (runs[:1], 0.2)


def test_an_engine_that_cannot_compute_gaps_keeps_the_leading_runs_alone() -> None:
    runs = tuple(
        Run("d", start, start, 300, ContextRisk(100, 50, share)) for start, share in ((0, 0.1), (300, 0.9), (600, 0.2))
    )
    whole = ReusePlan(1200, 0, (TokenRange(0, 900),), runs, ())
    gates = Gates(max_context_share=0.35, min_moved_tokens=300)
    options = ConnectorOptions(gates=gates)
    found = with_recompute_fraction(
        whole, OPEN, "m", None, options, gates, can_recompute=False, max_computed_tokens=4096
    )
    assert isinstance(found, ReusePlan)
    assert (found.runs, found.compute) == (runs[:1], ())


def test_a_plan_of_which_hardly_anything_may_be_moved_is_declined() -> None:
    gates = Gates(max_context_share=0.35, min_moved_tokens=100, min_reuse_ratio=0.3)
    runs = tuple(
        Run("d", start, target, length, ContextRisk(100, 50, share))
        for start, target, length, share in ((0, 0, 100, 0.1), (600, 100, 500, 0.9))
    )
    whole = ReusePlan(700, 0, (TokenRange(0, 600),), runs, ())
    gate = FidelityGate(answers=AnswerLimit(AnswerBudgets("m", None, "vllm", None, ()), 0.02))
    found = with_recompute_fraction(
        whole, gate, "m", None, ConnectorOptions(gates=gates), gates, can_recompute=True, max_computed_tokens=4096
    )
    assert isinstance(found, Decline)
    assert (found.reason, found.detail) == (
        DeclineReason.BELOW_MIN_REUSE_RATIO,
        "100 of 700 tokens reusable; min_reuse_ratio is 0.300",
    )


def test_a_plan_that_takes_longer_than_prefill_is_declined_unless_the_ratio_is_zero() -> None:
    probe = [pass_work([shape]) for shape in (TokenRange(0, 128), TokenRange(0, 16), TokenRange(3968, 4096))]
    dear_passes = ReuseCost([(work, 1e3 + work.tokens / 10) for work in probe])
    declined, _ = answered(cost=dear_passes)
    assert isinstance(declined, Decline)
    assert declined.reason is DeclineReason.NOT_WORTH
    assert isinstance(answered(cost=dear_passes, gates=Gates(min_reuse_ratio=0.0))[0], ReusePlan)
    dear_tokens = ReuseCost([(work, 1.0 + work.tokens) for work in probe])
    assert isinstance(answered(cost=dear_tokens)[0], ReusePlan)
