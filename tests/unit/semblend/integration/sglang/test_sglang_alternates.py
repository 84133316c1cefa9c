from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.semblend.integration.sglang.trackers import OPEN, words

from semblend.contract import ContextRisk, Decline, DeclineReason, ReusePlan, Run, TokenRange
from semblend.integration.sglang.alternates import UNNAMED, shared_prefix, verified
from semblend.integration.sglang.provider import SemanticPrefixResult


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 400), st.sampled_from([1, 16]), st.integers(0, 2**16))
def test_an_alternate_is_planned_only_where_its_tokens_equal_the_requests(
    lead: int, front: int, length: int, page: int, seed: int
) -> None:
    body = words(seed, length)
    alternate = np.concatenate([words(seed + 1, lead), body, words(seed + 2, 30)])
    tokens = np.concatenate([words(seed + 3, front), body, words(seed + 4, 30)])
    answer, donors = verified(SemanticPrefixResult(alternate, 999), tokens, 0, OPEN, page)
    if isinstance(answer, Decline):
        assert length < OPEN.min_run_tokens + page or len(tokens) < OPEN.min_prompt_tokens
        return
    assert len(donors[UNNAMED]) % page == 0
    for run in answer.runs:
        held = donors[run.donor_id][run.donor_start : run.donor_start + run.length]
        assert np.array_equal(held, tokens[run.target_start : run.target_end])


def test_a_plan_that_does_not_hold_is_refused() -> None:
    tokens, donor = words(1, 200), words(2, 200)
    run = Run("d", 0, 0, 100, ContextRisk(0, 0, 0.0))
    plan = ReusePlan(200, 0, (TokenRange(0, 100),), (run,), ())
    for held in ({"d": donor}, {"d": tokens[:50]}, {}):
        result = SemanticPrefixResult([], metadata={"plan": plan, "donors": held})
        answer, _ = verified(result, tokens, 0, OPEN, 1)
        assert isinstance(answer, Decline)
        assert answer.reason is DeclineReason.NOT_TOKEN_IDENTICAL
    answer, donors = verified(SemanticPrefixResult(tokens, metadata={"plan": plan}, source_id="d"), tokens, 0, OPEN, 1)
    assert answer is plan
    assert np.array_equal(donors["d"], tokens)


def test_short_prompts_and_covered_ones_are_not_aligned() -> None:
    tokens = words(1, 100)
    short, _ = verified(SemanticPrefixResult(tokens), tokens[:20], 0, OPEN, 1)
    covered, _ = verified(SemanticPrefixResult(tokens), tokens, 99, OPEN, 1)
    assert isinstance(short, Decline)
    assert isinstance(covered, Decline)
    assert (short.reason, covered.reason) == (DeclineReason.PROMPT_TOO_SHORT, DeclineReason.EXACT_PREFIX_COVERS)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_shared_prefix_counts_to_the_first_difference(one: list[int], other: list[int]) -> None:
    expected = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert shared_prefix(np.array(one, np.uint32), np.array(other, np.uint32)) == expected
