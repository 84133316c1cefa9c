"""A judge that cannot convict is worthless: planners that miss, invent or mix up tokens must be seen."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from benchmarks.discovery.cases import Recipient
from benchmarks.discovery.judge import CaseScore, Judge
from benchmarks.discovery.oracle import Oracle, Tokens

from semblend import Decline, Namespace, Planner, ReusePlan
from semblend.contract import ContextRisk, DeclineReason, Run, TokenRange

NAMESPACE = Namespace(tenant="t", model="m")
NO_RISK = ContextRisk(0, 0, 0.0)


class ScriptedPlanner:
    """Answers every prompt with the runs it was given."""

    def __init__(self, *runs: tuple[str, int, int, int]) -> None:
        self._runs = tuple(Run(*run, NO_RISK) for run in runs)

    def plan(self, tokens: Tokens, namespace: Namespace, exact_prefix_tokens: int = 0) -> ReusePlan | Decline:
        if not self._runs:
            return Decline(DeclineReason.NO_CANDIDATE)
        claimed = tuple(TokenRange(run.target_start, run.target_end) for run in self._runs)
        return ReusePlan(tokens.size, exact_prefix_tokens, claimed, self._runs, ())


@pytest.fixture
def donor() -> Tokens:
    return np.arange(1_000, 1_300, dtype=np.uint32)


def _score(donor: Tokens, *runs: tuple[str, int, int, int]) -> CaseScore:
    """The recipient: 20 new tokens, the donor's 300, 20 new ones."""
    recipient = np.concatenate([np.arange(20), donor, np.arange(20, 40)]).astype(np.uint32)
    score = CaseScore("case", 300)
    planner = cast(Planner, ScriptedPlanner(*runs))
    Judge(planner, NAMESPACE, Oracle([donor]), {"d": donor}).score(Recipient(recipient), score)
    return score


def test_a_planner_that_finds_everything_is_acquitted(donor: Tokens) -> None:
    score = _score(donor, ("d", 0, 20, 300))

    assert (score.oracle_runs, score.run_recall, score.token_share, score.wrong_tokens) == (1, 1.0, 1.0, 0)


def test_a_run_that_lacks_one_token_is_not_recalled(donor: Tokens) -> None:
    score = _score(donor, ("d", 1, 21, 299))

    assert score.run_recall == 0.0
    assert score.token_share == pytest.approx(299 / 300)


def test_a_planner_that_declines_recalls_nothing(donor: Tokens) -> None:
    score = _score(donor)

    assert (score.plans, score.run_recall, score.token_share) == (0, 0.0, 0.0)


def test_a_run_off_by_one_holds_only_wrong_tokens(donor: Tokens) -> None:
    assert _score(donor, ("d", 0, 21, 299)).wrong_tokens == 299


def test_a_run_beyond_the_donors_end_is_wrong(donor: Tokens) -> None:
    assert _score(donor, ("d", 10, 30, 300)).wrong_tokens == 300


def test_a_plan_for_text_the_oracle_does_not_know_is_counted(donor: Tokens) -> None:
    score = _score(donor, ("d", 0, 5, 10))

    assert score.planned_other_tokens == 10
    assert score.wrong_tokens == 10
