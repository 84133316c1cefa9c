"""Answer budgets as a file, the smallest fraction that keeps the answers, and the mark of a model's weights."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sembase.errors import ConfigurationError
from semblend.contract import PlanShape
from semblend.contract.answer_budgets import (
    MIN_RIGHT,
    AnswerBudgets,
    Budget,
    Trial,
    decode_budgets,
    encode_budgets,
    smallest_of_all,
)
from semblend.contract.model_folder import weights_mark

FRACTIONS = (0.05, 0.1, 0.2)
RANGE: dict[str, Any] = {"over_tokens": 0, "up_to_tokens": 4096}
NAMES = st.none() | st.text("ab-", max_size=4)


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    trials = []
    for fraction in FRACTIONS:
        items = draw(st.integers(MIN_RIGHT, 200))
        right, lost = draw(st.integers(MIN_RIGHT, items)), draw(st.integers(0, items))
        gained, speedup = draw(st.integers(0, items - right)), draw(st.none() | st.floats(0, 99))
        trials.append(Trial(fraction, items, right, lost, gained, speedup))
    over = draw(st.integers(0, 9_999))
    up_to = draw(st.integers(over + 1, 99_999))
    return Budget(draw(st.sampled_from(PlanShape)), over, up_to, draw(st.integers(0, 999)), tuple(trials))


@given(st.lists(budgets(), max_size=4), NAMES, NAMES)
def test_what_is_written_is_read(found: list[Budget], weights: str | None, policy: str | None) -> None:
    whole = AnswerBudgets("m", weights, "vllm", policy, tuple(found))
    assert decode_budgets(encode_budgets(whole), "here") == whole


@given(budgets(), st.floats(0, 1), st.floats(0, 1))
def test_the_smallest_fraction_within_the_limit_is_taken(budget: Budget, limit: float, other: float) -> None:
    taken = budget.smallest(limit)
    within = [
        trial
        for trial in budget.trials
        if trial.likely_loss <= limit and (trial.speedup is None or trial.speedup >= 1.0)
    ]
    assert (taken is None) == (not within)
    if taken is not None:
        assert taken.fraction == min(trial.fraction for trial in within)
    strict, loose = budget.smallest(min(limit, other)), budget.smallest(max(limit, other))
    if strict is not None:
        assert loose is not None
        assert loose.fraction <= strict.fraction


@pytest.mark.parametrize(
    ("items", "lost", "gained", "kept"),
    [
        (50, 0, 0, True),
        (50, 1, 0, False),
        (98, 1, 0, True),
        (97, 1, 0, False),
        (100, 2, 0, False),
        (100, 2, 2, True),
        (100, 10, 9, False),  # as good as even, with too much in play to say so
        (100, 10, 14, True),
    ],
)
def test_a_small_sample_must_lose_less_than_the_limit(items: int, lost: int, gained: int, *, kept: bool) -> None:
    """0 of 23 lost was followed by 2 of 14 (ADR 0030)."""
    assert Trial(0.1, items, items - gained, lost, gained).keeps(0.02) is kept


def test_three_of_four_true_losses_are_below_the_likely_one() -> None:
    """Of classes that truly lose 3 % and gain 1 %, at most one in four measures less than that."""
    draws = random.Random(5)
    items, below = 200, 0
    for _ in range(400):
        changes = [draws.random() for _ in range(items)]
        lost, gained = sum(each < 0.03 for each in changes), sum(0.03 <= each < 0.04 for each in changes)
        below += Trial(0.1, items, items - 20, lost, gained).likely_loss < 0.02
    assert below < 0.27 * 400


def test_the_fraction_for_several_budgets_is_one_that_each_of_them_keeps() -> None:
    good, bad, slow = (Trial(0.1, 100, 100, 0), Trial(0.2, 100, 100, 9), Trial(0.3, 100, 100, 0, speedup=0.8))
    first = Budget(PlanShape.REORDER, 0, 4096, 0, (good, Trial(0.2, 100, 100, 0)))
    second = Budget(PlanShape.COMPOSITION, 0, 4096, 0, (Trial(0.1, 100, 100, 9), Trial(0.2, 100, 100, 0)))
    third = Budget(PlanShape.COMPOSITION, 0, 4096, 0, (good, bad, slow))
    last = Budget(PlanShape.REORDER, 0, 4096, 0, (bad, replace(slow, speedup=2.0)))
    assert smallest_of_all([first], 0.02) == 0.1
    assert smallest_of_all([first, second], 0.02) == 0.2, "the larger one keeps both"
    assert smallest_of_all([third, last], 0.02) is None, "each keeps its answers, with no fraction in common"
    coarse = Budget(PlanShape.REORDER, 0, 4096, 0, (good,))
    assert smallest_of_all([coarse, second], 0.02) == 0.2, "more than was needed"
    assert (
        smallest_of_all([second, Budget(PlanShape.REORDER, 0, 4096, 0, (replace(good, fraction=0.05),))], 0.02) == 0.2
    )
    assert smallest_of_all([], 0.02) is None


def test_a_fraction_that_is_slower_than_cold_is_not_taken() -> None:
    slow, fast = Trial(0.1, 100, 100, 0, speedup=0.9), Trial(0.2, 100, 100, 0, speedup=1.1)
    assert Budget(PlanShape.REORDER, 0, 4096, 0, (slow, fast)).smallest(0.02) is fast
    assert Budget(PlanShape.REORDER, 0, 4096, 0, (slow,)).smallest(0.02) is None


def test_a_prompt_gets_the_shortest_measured_length_that_covers_it() -> None:
    trial = (Trial(0.1, 100, 100, 0),)
    short, long = Budget(PlanShape.REORDER, 0, 1536, 640, trial), Budget(PlanShape.REORDER, 2048, 4096, 320, trial)
    wide = Budget(PlanShape.REORDER, 1000, 8192, 0, trial)
    whole = AnswerBudgets("m", None, "vllm", None, (wide, long, short))
    found = {tokens: whole.of(PlanShape.REORDER, tokens) for tokens in (1, 1536, 1537, 2049, 4096, 4097, 8192, 8193)}
    assert list(found.values()) == [short, short, wide, long, long, wide, wide, None]
    assert whole.of(PlanShape.EDIT, 100) is None


def test_only_what_keeps_its_answers_says_how_short_a_moved_passage_may_be() -> None:
    kept, lost = (Trial(0.1, 100, 100, 0),), (Trial(0.1, 100, 100, 2),)
    budgets = (
        Budget(PlanShape.REORDER, 0, 4096, 320, lost),
        Budget(PlanShape.REORDER, 0, 8192, 640, kept),
        Budget(PlanShape.EDIT, 0, 1536, 0, kept),
    )
    whole = AnswerBudgets("m", None, "vllm", None, budgets)
    assert [whole.min_moved_tokens(limit) for limit in (0.02, 0.05)] == [640, 320]
    assert replace(whole, budgets=budgets[:1]).min_moved_tokens(0.02) == 0


def test_an_earlier_measurement_is_kept_for_other_classes_of_the_same_model_engine_and_policy() -> None:
    trial = (Trial(0.1, 100, 100, 0),)
    reorder, edit = Budget(PlanShape.REORDER, 0, 4096, 320, trial), Budget(PlanShape.EDIT, 0, 1536, 0, trial)
    now = AnswerBudgets("m", "w", "vllm", "question", (reorder,))
    longer = replace(reorder, over_tokens=4096, up_to_tokens=9_000)
    earlier = replace(now, budgets=(edit, longer))
    assert now.with_others_of(earlier, [(PlanShape.REORDER, 4096), (PlanShape.REORDER, 9_000)]).budgets == (
        edit,
        reorder,
    )
    assert now.with_others_of(earlier, [(PlanShape.REORDER, 4096)]).budgets == (edit, longer, reorder)
    assert now.with_others_of(earlier, [(PlanShape.EDIT, 1536), (PlanShape.REORDER, 9_000)]) == now
    for other in (
        replace(earlier, weights=None),
        replace(earlier, engine="sglang"),
        replace(earlier, policy="first"),
    ):
        assert now.with_others_of(other, [(PlanShape.REORDER, 4096)]) == now
    unknown, another = replace(now, weights=None), replace(earlier, weights=None, model="n")
    assert unknown.with_others_of(another, []) == unknown, "without a mark only the name tells models apart"
    assert unknown.with_others_of(replace(another, model="m"), [(PlanShape.REORDER, 4096)]).budgets[0] == edit


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "semblend.calibration.v2"},
        {"more": 1},
        {
            "budgets": [
                {"class": "reorder", "over_tokens": 0, "up_to_tokens": 4096, "min_moved_tokens": 0, "trials": []}
            ]
        },
        {
            "budgets": [
                {"class": "shuffle", "over_tokens": 0, "up_to_tokens": 4096, "min_moved_tokens": 0, "trials": [{}]}
            ]
        },
        {
            "budgets": [
                {"class": "edit", "over_tokens": 0, "up_to_tokens": 4096, "min_moved_tokens": True, "trials": []}
            ]
        },
        {"weights": 7},
    ],
)
def test_another_file_is_refused(change: dict[str, Any]) -> None:
    record = json.loads(encode_budgets(AnswerBudgets("m", None, "vllm", None, ()))) | change
    with pytest.raises(ConfigurationError, match="here"):
        decode_budgets(json.dumps(record), "here")
    with pytest.raises(ConfigurationError, match="here"):
        decode_budgets("{", "here")


@pytest.mark.parametrize(
    "values",
    [
        (1.5, 100, 100, 0, 0),
        (0.1, 100, MIN_RIGHT - 1, 0, 0),
        (0.1, 100, 101, 0, 0),
        (0.1, 100, 100, 101, 0),
        (0.1, 100, 100, -1, 0),
        (0.1, 100, 90, 0, 11),
        (0.1, 100, 90, 0, -1),
    ],
    ids=str,
)
def test_a_trial_that_cannot_be_is_refused(values: tuple[float, int, int, int, int]) -> None:
    with pytest.raises(ConfigurationError):
        Trial(*values)
    with pytest.raises(ConfigurationError, match="rise"):
        Budget(PlanShape.EDIT, 0, 1536, 0, (Trial(0.1, 100, 100, 0), Trial(0.05, 100, 100, 0)))


def test_a_copy_of_a_model_has_its_mark_and_a_fine_tune_another(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    weights = model / "model.safetensors"
    weights.write_bytes(bytes(range(256)) * 8_192)  # 2 MiB
    (model / "config.json").write_text("{}")
    (model / "README.md").write_text("words")
    mark = weights_mark(model)
    assert mark is not None
    copy = Path(shutil.copytree(model, tmp_path / "copy"))
    (copy / "README.md").write_text("other words")
    assert weights_mark(copy) == mark
    tuned = Path(shutil.copytree(model, tmp_path / "tuned"))
    (tuned / weights.name).write_bytes(bytes(255 - value for value in range(256)) * 8_192)
    assert weights_mark(tuned) != mark
    (copy / "config.json").write_text('{"a": 1}')
    assert weights_mark(copy) != mark
    assert weights_mark(tmp_path / "nothing") is None
    assert weights_mark(tmp_path) is None
