"""Laws of choosing: within the budget, only loaded positions; the built-in policies do what they say."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError, ContractError
from semblend.contract import ContextRisk, Run, TokenRange
from semblend.plan.selection import (
    MIN_SELECTABLE_TOKENS,
    MOVED_FRACTION,
    POLICIES,
    SHORT_PROMPT_FRACTION,
    SHORT_PROMPT_TOKENS,
    Evidence,
    Selection,
    as_ranges,
    choose,
    default_recompute_fraction,
    evidence_of,
    joined,
    with_attention,
)


def run(start: int, length: int, *, preceding: int = 100, differing: int = 50) -> Run:
    share = 0.3 if differing else 0.0
    return Run("donor", start + 7, start, length, ContextRisk(preceding, differing, share))


def probed(evidence: Evidence, seed: int) -> Evidence:
    random = np.random.default_rng(seed)
    end = int(evidence.positions[-1]) + 1
    attention = random.random((3, 2, end), np.float32)
    return with_attention(evidence, attention)


@st.composite
def several_runs(draw: st.DrawFn) -> list[Run]:
    runs, position = [], 0
    for _ in range(draw(st.integers(1, 5))):
        position += draw(st.integers(0, 9))
        length = draw(st.integers(1, 60))
        runs.append(run(position, length))
        position += length
    return runs


@given(
    runs=several_runs(),
    policy=st.sampled_from(POLICIES.names()),
    share=st.floats(0, 1),
    bridge=st.integers(0, 6),
    seed=st.integers(0, 9),
)
def test_a_choice_stays_within_budget_and_among_loaded_positions(
    runs: list[Run], policy: str, share: float, bridge: int, seed: int
) -> None:
    evidence = probed(evidence_of(runs), seed)
    chosen = choose(Selection(policy, share, bridge), evidence)
    assert len(chosen) <= share * len(evidence.positions)
    assert np.isin(chosen, evidence.positions).all()
    assert (np.diff(chosen) > 0).all()
    if not bridge:
        assert len(chosen) == int(share * len(evidence.positions))


@given(runs=several_runs(), seed=st.integers(0, 9), bridge=st.integers(1, 6))
def test_bridging_leaves_no_gap_it_was_to_close(runs: list[Run], seed: int, bridge: int) -> None:
    evidence = probed(evidence_of(runs), seed)
    chosen = choose(Selection("question", 0.5, bridge), evidence)
    for left, right in zip(chosen[:-1].tolist(), chosen[1:].tolist(), strict=True):
        is_loaded = np.isin(np.arange(left, right), evidence.positions).all()
        assert not is_loaded or right - left == 1 or right - left > bridge + 1


def test_everything_is_chosen_at_share_one() -> None:
    evidence = evidence_of([run(3, 10), run(20, 5)])
    assert choose(Selection("first", 1.0), evidence).tolist() == [*range(3, 13), *range(20, 25)]


def test_first_takes_the_heads_of_all_runs() -> None:
    evidence = evidence_of([run(0, 10), run(20, 10)])
    assert choose(Selection("first", 0.2), evidence).tolist() == [0, 1, 20, 21]


def test_question_takes_what_is_attended_to() -> None:
    attention = np.zeros((2, 1, 30), np.float32)
    attention[:, 0, [4, 25]] = 1.0
    attention[:, 0, 15] = 9.0  # not loaded
    evidence = with_attention(evidence_of([run(0, 10), run(20, 10)]), attention)
    assert choose(Selection("question", 0.1), evidence).tolist() == [4, 25]


def test_attention_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(ContractError, match="attention"):
        choose(Selection("question", 0.5), evidence_of([run(0, 10)]))


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'question'"):
        choose(Selection("qestion", 0.5), evidence_of([run(0, 10)]))


@pytest.mark.parametrize(("share", "bridge"), [(-0.1, 0), (1.1, 0), (0.5, -1)])
def test_impossible_selections_are_refused(share: float, bridge: int) -> None:
    with pytest.raises(ConfigurationError):
        Selection("first", share, bridge)


@given(st.sets(st.integers(0, 80)))
def test_ranges_are_maximal_and_cover_what_was_given(positions: set[int]) -> None:
    ranges = as_ranges(np.array(sorted(positions), np.int64))
    assert sorted(positions) == [i for part in ranges for i in range(part.start, part.end)]
    assert all(later.start > earlier.end for earlier, later in pairwise(ranges))


def test_holes_and_chosen_positions_join() -> None:
    assert joined([TokenRange(0, 3), TokenRange(8, 9)], np.array([3, 6])) == (
        TokenRange(0, 4),
        TokenRange(6, 7),
        TokenRange(8, 9),
    )


def test_by_default_only_short_inexact_loads_worth_it_choose() -> None:
    least, short = MIN_SELECTABLE_TOKENS, SHORT_PROMPT_TOKENS
    half = least // 2
    assert (
        default_recompute_fraction([run(0, least)])
        == default_recompute_fraction([run(0, half), run(half + 9, half)])
        == SHORT_PROMPT_FRACTION
    )
    assert default_recompute_fraction([run(0, least - 1)]) == 0.0
    assert default_recompute_fraction([run(0, short - 1)]) == SHORT_PROMPT_FRACTION
    assert default_recompute_fraction([run(0, short)]) == default_recompute_fraction([run(short - least, least)]) == 0.0
    assert default_recompute_fraction([run(30 * short, least)]) == 0.0, (
        "short, but each stretch would walk a long context"
    )
    assert default_recompute_fraction([run(0, least, differing=0)]) == 0.0
    assert default_recompute_fraction([]) == 0.0


def test_by_default_a_tenth_of_a_plan_with_a_moved_run_is_recomputed() -> None:
    moved = replace(run(30 * SHORT_PROMPT_TOKENS, 700), risk=ContextRisk(900, 900, 0.36))
    kept = replace(moved, risk=ContextRisk(900, 700, 0.35))
    assert default_recompute_fraction([kept, moved]) == default_recompute_fraction([moved]) == MOVED_FRACTION
    assert default_recompute_fraction([kept]) == 0.0
