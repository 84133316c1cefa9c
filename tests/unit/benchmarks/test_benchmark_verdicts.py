"""A miss is printed as a miss, and only a broken law or an enforced target fails a run."""

from __future__ import annotations

import pytest
from benchmarks.console import exit_code
from benchmarks.targets import Spread, Verdict


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        (Verdict("a", "<=", 1.0, 1.0), "PASS"),
        (Verdict("a", "<=", 1.0, 1.1), "NOT REACHED"),
        (Verdict("a", ">=", 1.0, 0.9), "NOT REACHED"),
        (Verdict("a", "==", 0, 1, is_law=True), "VIOLATED"),
        (Verdict("a", "==", 0, None, is_law=True), "NOT MEASURED"),
    ],
)
def test_the_word_of_a_verdict(verdict: Verdict, word: str) -> None:
    assert verdict.word == word


def test_a_missed_target_fails_only_when_enforced() -> None:
    missed = [Verdict("slow", "<=", 1.0, 2.0)]

    assert exit_code(missed, enforce=False) == 0
    assert exit_code(missed, enforce=True) == 1


@pytest.mark.parametrize("measured", [1, None])
def test_a_broken_or_unmeasured_law_always_fails(measured: int | None) -> None:
    assert exit_code([Verdict("law", "==", 0, measured, is_law=True)], enforce=False) == 1


def test_a_spread_is_a_median_with_its_tail() -> None:
    spread = Spread.of([float(i) for i in range(1, 102)])

    assert spread is not None
    assert (spread.n, spread.p50, spread.p99, spread.low, spread.high) == (101, 51.0, 100.0, 1.0, 101.0)
    assert Spread.of([]) is None
