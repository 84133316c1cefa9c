"""What is on trial in the fidelity bench: policies by hand, contexts that hold the run, gates on signs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.fidelity.abstention import judge, limit_of, lines_of, max_served, rank_correlation
from benchmarks.fidelity.trial_policies import (
    HEAD_TOKENS,
    question_by_depth,
    question_by_head,
    question_by_risk,
    question_peak,
    question_rms,
    stretch_or_question,
    whole_run,
    whole_run_last,
)

from semblend.plan.selection import Evidence, Probe, Score


def two_runs(length: int = 40) -> Evidence:
    """Two runs one behind the other; the question reads the first twice as much, and one position of the second."""
    positions = np.arange(10, 10 + 2 * length)
    distance = np.concatenate([np.arange(length), np.arange(length)])
    attention = np.where(positions < 10 + length, 2.0, 1.0)
    attention[length + 30] = 9.0
    return Evidence(positions, distance, np.zeros(2 * length), attention[None, None].astype(np.float32))


def best(scores: np.ndarray, count: int) -> set[int]:
    return set(np.argsort(-scores, kind="stable")[:count].tolist())


def test_risk_passes_over_positions_whose_context_is_shared() -> None:
    evidence = two_runs()
    second = np.concatenate([np.zeros(40), np.ones(40)])
    scores = question_by_risk(replace(evidence, context_share=second))
    assert best(scores, 40) == set(range(40, 80))


@pytest.mark.parametrize("score", [question_by_head, question_by_depth, question_peak, question_rms])
def test_what_is_read_most_is_first_however_layers_and_heads_are_joined(score: Score) -> None:
    attention = np.stack([two_runs().seen(Probe.ATTENTION)[0]] * 3)
    assert best(score(replace(two_runs(), attention=attention)), 1) == {70}


def test_half_a_stretch_half_what_is_read() -> None:
    taken = best(stretch_or_question(two_runs()), 5)
    assert {0, 1, 2} <= taken
    assert 70 in taken


def test_a_run_is_taken_whole_behind_the_heads_of_all() -> None:
    heads = {*range(HEAD_TOKENS), *range(40, 40 + HEAD_TOKENS)}
    assert best(whole_run(two_runs()), 2 * HEAD_TOKENS) == heads
    assert best(whole_run(two_runs()), 2 * HEAD_TOKENS + 24) == heads | set(range(40))
    assert best(whole_run_last(two_runs()), 2 * HEAD_TOKENS + 24) == heads | set(range(40, 80))


def test_a_limit_never_splits_equal_signs() -> None:
    sign, kl = np.array([1.0, 1.0, 2.0]), np.array([0.01, 0.09, 0.0])
    assert limit_of(sign, kl, 0.02) == -np.inf
    assert limit_of(sign, kl, 0.05) == 2.0
    assert max_served(kl, 0.02) == 2


def test_a_perfect_sign_serves_nearly_as_much_as_the_oracle() -> None:
    kl = np.random.default_rng(1).exponential(0.03, 400)
    found = judge(kl * 5, kl)
    assert found.rank_correlation == pytest.approx(1.0)
    assert found.kl == pytest.approx(0.02, abs=0.002)
    assert found.served == pytest.approx(found.oracle, abs=0.05)


def test_a_sign_that_says_nothing_correlates_with_nothing() -> None:
    assert rank_correlation(np.ones(5), np.arange(5.0)) == 0.0


def test_lines_leave_out_what_was_not_recorded() -> None:
    rows = [
        {"arm": "a", "case": "c", "kl": [0.01 * n], "moved_first": float(n), "moved_question": 1.0} for n in range(6)
    ]
    assert [(line[0], line[1]) for line in lines_of(rows, "a")] == [
        ("c", "moved_question"),
        ("c", "moved_first"),
        ("all", "moved_question"),
        ("all", "moved_first"),
    ]
