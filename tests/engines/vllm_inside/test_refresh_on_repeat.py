"""Passages only ever seen behind loaded KV: due on their second coming, within a bounded share, and forgettable."""

from __future__ import annotations

import numpy as np
import pytest

from semblend.contract import ContextRisk, Namespace, ReusePlan, Run, TokenRange
from semblend.integration.claims import exact_until
from semblend.integration.core.refresh_on_repeat import MAX_COLD_FRACTION, RefreshOnRepeat, novel_stretches

pytestmark = pytest.mark.engine
NAMESPACE = Namespace(tenant=None, model="m")


def text(seed: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, 5000, tokens).astype(np.uint32)


def plan_of(known: int, prompt: int) -> ReusePlan:
    run = Run("donor", 10, 0, known, ContextRisk(10, 10, 0.1))
    return ReusePlan(prompt, 0, (TokenRange(0, known),), (run,), ())


def prompt_of(passage: int) -> tuple[np.ndarray, ReusePlan]:
    tokens = np.concatenate([text(0, 100), text(passage, 200)])
    return tokens, plan_of(100, len(tokens))


def serve(sight: RefreshOnRepeat, tokens: np.ndarray, plan: ReusePlan) -> bool:
    """Ask and take the answer; whether it was to serve cold."""
    due = sight.due(tokens, NAMESPACE, plan)
    sight.served(due)
    return bool(due)


def warm(sight: RefreshOnRepeat, times: int = 20) -> None:
    tokens, plan = prompt_of(999)
    for _ in range(times):
        assert not serve(sight, tokens, plan)


def test_due_on_the_second_coming_and_not_again() -> None:
    sight = RefreshOnRepeat(64)
    warm(sight)
    tokens, plan = prompt_of(1)
    assert not serve(sight, tokens, plan)
    sight.remember(tokens, NAMESPACE, novel_stretches(plan, 0))
    other = Namespace(tenant="salt:x", model="m")
    assert not sight.due(tokens, other, plan), "another tenant's passages do not count"
    assert sight.due(tokens, NAMESPACE, plan), "asked, but the engine has not taken the answer"
    assert serve(sight, tokens, plan)
    assert not serve(sight, tokens, plan), "one cold request is enough"


def test_behind_a_restored_prefix_everything_is_exact_and_nothing_is_remembered() -> None:
    restored = Run("donor", 0, 0, 300, ContextRisk(0, 0, 0.0))
    plan = ReusePlan(500, 0, (TokenRange(0, 300),), (restored,), ())
    assert exact_until(plan, {"donor": 300}.__getitem__) == 500
    assert exact_until(plan, {"donor": 299}.__getitem__) == 0, (
        "behind another first token it is not the donor's context"
    )
    assert novel_stretches(plan, 500) == []
    moved = Run("other", 5, 400, 50, ContextRisk(400, 400, 0.9))
    mixed = ReusePlan(500, 0, (TokenRange(0, 450),), (restored, moved), (TokenRange(300, 400),))
    assert exact_until(mixed, {"donor": 300, "other": 0}.__getitem__) == 400
    assert novel_stretches(mixed, 400) == [TokenRange(450, 500)]


def test_little_that_comes_again_is_not_worth_the_reuse_of_much() -> None:
    sight = RefreshOnRepeat(64)
    warm(sight)
    tokens = np.concatenate([text(0, 300), text(1, 200)])
    plan = plan_of(300, len(tokens))
    sight.remember(tokens, NAMESPACE, novel_stretches(plan, 0))
    assert not sight.due(tokens, NAMESPACE, plan)


def test_what_the_plan_loads_anyway_is_not_due() -> None:
    sight = RefreshOnRepeat(64)
    warm(sight)
    tokens, plan = prompt_of(1)
    sight.remember(tokens, NAMESPACE, novel_stretches(plan, 0))
    assert not sight.due(tokens, NAMESPACE, plan_of(len(tokens) - 1, len(tokens)))


def test_the_share_of_cold_requests_is_bounded() -> None:
    sight = RefreshOnRepeat(64)
    cold = 0
    for n in range(1, 201):
        tokens, plan = prompt_of(n)
        sight.remember(tokens, NAMESPACE, novel_stretches(plan, 0))
        cold += serve(sight, tokens, plan)
        assert cold <= MAX_COLD_FRACTION * n + 1
    assert cold > 0.5 * MAX_COLD_FRACTION * 200


def test_clear_forgets() -> None:
    sight = RefreshOnRepeat(64)
    warm(sight)
    tokens, plan = prompt_of(1)
    sight.remember(tokens, NAMESPACE, novel_stretches(plan, 0))
    sight.clear()
    assert len(sight) == 0
    assert not sight.due(tokens, NAMESPACE, plan)


def test_novel_stretches_lie_behind_the_first_run_and_cover_what_is_not_loaded() -> None:
    risk = ContextRisk(0, 0, 0.0)
    runs = (Run("a", 0, 50, 100, risk), Run("b", 0, 150, 64, risk), Run("c", 0, 300, 64, risk))
    plan = ReusePlan(400, 0, (TokenRange(0, 364),), runs, (TokenRange(0, 50), TokenRange(214, 300)))
    assert novel_stretches(plan, 0) == [TokenRange(214, 300), TokenRange(364, 400)]
