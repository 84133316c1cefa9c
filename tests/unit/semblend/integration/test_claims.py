from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend.contract import ContextRisk, Decline, DeclineReason, ReusePlan, Run, TokenRange
from semblend.integration.claims import cut_at, exact_until, prefix_shaped, within_budget, within_gaps

RISK = ContextRisk(0, 0, 0.0)


def plan_of(*pieces: tuple[int, int], boundary: int = 0, prompt: int = 2000, shift: int = 0) -> ReusePlan:
    """Runs at ``(start, length)``; everything between them is computed."""
    runs = tuple(Run("d", start - shift, start, length, RISK) for start, length in pieces)
    gaps, position = [], boundary
    for run in runs:
        if run.target_start > position:
            gaps.append(TokenRange(position, run.target_start))
        position = run.target_end
    return ReusePlan(prompt, boundary, (TokenRange(boundary, position),), runs, tuple(gaps))


def test_what_one_step_cannot_compute_is_left_to_the_engine() -> None:
    plan = plan_of((10, 100), (200, 300), (900, 100))
    assert within_budget(plan, 500) is plan
    cut = within_budget(plan, 499)
    assert isinstance(cut, ReusePlan)
    assert [run.target_start for run in cut.runs] == [10, 200]
    assert (cut.claim_end, cut.computed_tokens) == (500, 100)
    nothing = within_budget(plan, 9)
    assert isinstance(nothing, Decline)
    assert nothing.reason is DeclineReason.CAPACITY


@given(
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 80)), min_size=1, max_size=12),
    st.integers(0, 400),
)
def test_a_cut_plan_is_the_longest_head_that_fits(gaps: list[tuple[int, int]], budget: int) -> None:
    pieces, position = [], 0
    for gap, length in gaps:
        pieces.append((position + gap, length))
        position += gap + length
    plan = plan_of(*pieces)
    cut = within_budget(plan, budget)
    fitting = [k for k in range(1, len(gaps) + 1) if sum(gap for gap, _ in gaps[:k]) <= budget]
    if not fitting:
        assert isinstance(cut, Decline)
    else:
        assert isinstance(cut, ReusePlan)
        assert cut.runs == plan.runs[: fitting[-1]]


def test_chosen_tokens_count_into_the_step() -> None:
    plan = replace(plan_of((10, 100), (200, 300)), recompute_fraction=0.5)
    assert plan.max_recomputed_tokens == 200
    assert within_budget(plan, 300) is plan
    cut = within_budget(plan, 299)
    assert isinstance(cut, ReusePlan)
    assert (len(cut.runs), cut.computed_tokens, cut.max_recomputed_tokens) == (1, 10, 50)
    assert isinstance(within_budget(plan, 59), Decline)


def test_prefix_shaped_loads_end_at_the_first_hole_and_move_only_if_rotation_was_proven() -> None:
    plan = plan_of((128, 100), (228, 100), (400, 100), boundary=128)
    cut = prefix_shaped(plan, 0.0, may_rotate=False)
    assert isinstance(cut, ReusePlan)
    assert (cut.claim_end, cut.compute) == (328, ())
    moved = plan_of((128, 100), boundary=128, shift=7)
    assert isinstance(prefix_shaped(moved, 0.0, may_rotate=True), ReusePlan)
    refused = prefix_shaped(moved, 0.0, may_rotate=False)
    assert isinstance(refused, Decline)
    assert refused.reason is DeclineReason.UNSUPPORTED_MODE
    little = prefix_shaped(plan, 0.5, may_rotate=False)
    assert isinstance(little, Decline)
    assert little.reason is DeclineReason.BELOW_MIN_REUSE_RATIO


@pytest.mark.parametrize(("shared", "exact"), [(500, 2000), (499, 400), (100, 400), (99, 0), (0, 0)])
def test_kv_is_exact_while_donor_and_prompt_are_the_same_from_the_first_token(shared: int, exact: int) -> None:
    plan = plan_of((0, 100), (400, 100))
    assert exact_until(plan, lambda _: shared) == exact


def test_a_moved_run_is_never_exact() -> None:
    plan = plan_of((100, 100), shift=5)
    assert exact_until(plan, lambda _: 2000) == 100
    assert exact_until(replace(plan, runs=(replace(plan.runs[0], donor_start=100),)), lambda _: 2000) == 2000


@given(
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 80)), min_size=1, max_size=12),
    st.integers(0, 2000),
    st.sampled_from([1, 16, 64]),
)
def test_a_claim_in_whole_pages_ends_inside_its_last_run(gaps: list[tuple[int, int]], end: int, page: int) -> None:
    pieces, position = [], 0
    for gap, length in gaps:
        pieces.append((position + gap, length))
        position += gap + length
    plan = plan_of(*pieces)
    loaded = {p for run in plan.runs for p in range(run.target_start, run.target_end)}
    ends = [e for e in range(page, min(end, plan.claim_end) + 1, page) if e - 1 in loaded]
    cut = cut_at(plan, end, page)
    if not ends:
        assert cut is None
    else:
        assert cut is not None
        assert cut.claim_end == ends[-1]
        assert {p for run in cut.runs for p in range(run.target_start, run.target_end)} == {
            p for p in loaded if p < ends[-1]
        }


def test_few_enough_holes_are_the_leading_ones() -> None:
    plan = plan_of((10, 100), (110, 5), (200, 300), (900, 100))
    assert within_gaps(plan, 3) is plan
    assert [run.target_start for run in within_gaps(plan, 2).runs] == [10, 110, 200]
    assert [run.target_start for run in within_gaps(plan, 1).runs] == [10, 110]
