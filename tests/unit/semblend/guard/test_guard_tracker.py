"""Classes, their parts of alpha, bounded state, the file between guard and gate, the sampler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from semblend.contract import PlanShape
from semblend.guard.sampler import is_sampled
from semblend.guard.tracker import MAX_MODELS, GuardLimits, Tracker
from semblend.guard.verdicts import Verdicts, decode_tracker, encode_tracker, read_tracker, write_tracker

EDIT, REORDER = PlanShape.EDIT, PlanShape.REORDER


def broken(tracker: Tracker, model: str = "m", shape: PlanShape = EDIT) -> int:
    return next(n for n in range(1, 100) if tracker.observe(model, shape, 0.8))


def test_a_broken_class_goes_off_and_the_others_stay_on() -> None:
    tracker = Tracker(GuardLimits())
    for _ in range(100):
        assert not tracker.observe("m", REORDER, 0.005)
    assert broken(tracker) <= 12
    assert tracker.tests["m", EDIT].is_off
    assert not tracker.tests["m", REORDER].is_off
    assert not tracker.observe("m", EDIT, 0.9)  # reported once
    assert "off: mean KL 0.8000" in tracker.why(("m", EDIT))


def test_a_class_with_a_ceiling_of_its_own_is_held_to_it_and_no_other_is() -> None:
    tracker = Tracker(GuardLimits(class_ceilings_kl={EDIT: 0.004}))
    assert next(n for n in range(2000) if tracker.observe("m", EDIT, 0.015)) < 60
    assert "against a ceiling of 0.004" in tracker.why(("m", EDIT))
    assert not any(tracker.observe("m", REORDER, 0.015) for _ in range(2000))
    assert not any(tracker.observe("n", EDIT, 0.0039) for _ in range(2000))


@pytest.mark.parametrize("ceiling_kl", [0.0, -1.0, 0.03, float("nan")])
def test_a_class_is_never_allowed_more_than_all(ceiling_kl: float) -> None:
    with pytest.raises(ConfigurationError, match="ceiling of edit must be between"):
        GuardLimits(class_ceilings_kl={EDIT: ceiling_kl})


def test_ceilings_of_classes_are_kept_with_the_tests_and_changed_ones_begin_new_tests(tmp_path: Path) -> None:
    path, limits = tmp_path / "guard.json", GuardLimits(class_ceilings_kl={EDIT: 0.004})
    tracker = Tracker(limits)
    tracker.observe("m", EDIT, 0.001)
    write_tracker(path, tracker)
    assert read_tracker(path, limits).tests.keys() == {("m", EDIT)}
    assert not read_tracker(path, GuardLimits(class_ceilings_kl={EDIT: 0.005})).tests
    older = {name: value for name, value in json.loads(path.read_text()).items() if name != "class_ceilings_kl"}
    assert decode_tracker(json.dumps(older)).limits == GuardLimits()
    with pytest.raises(ConfigurationError, match="not a guard file"):
        decode_tracker(json.dumps({**older, "class_ceilings_kl": [1]}))


def test_all_tests_ever_begun_share_one_alpha() -> None:
    limits = GuardLimits(alpha=0.05)
    tracker = Tracker(limits)
    parts = []
    for number in range(200):
        tracker.observe("m", EDIT, 0.0)
        parts.append(tracker.tests["m", EDIT].alpha(limits))
        assert tracker.begun == number + 1
        assert tracker.reset("m", EDIT)
    assert 0.99 * limits.alpha < sum(parts) <= limits.alpha
    assert not tracker.reset("m", EDIT)


def test_more_models_than_fit_are_refused_and_counted() -> None:
    tracker = Tracker(GuardLimits())
    for number in range(MAX_MODELS + 5):
        tracker.observe(f"m{number}", EDIT, 0.9)
    tracker.observe("m0", REORDER, 0.0)
    assert len(tracker.tests) == MAX_MODELS + 1
    assert tracker.refused == 5


@pytest.mark.parametrize("wrong", [{"ceiling_kl": 0.0}, {"ceiling_kl": 2.0}, {"alpha": 0.0}, {"alpha": 1.0}])
def test_wrong_limits_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        GuardLimits(**wrong)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(PlanShape), st.floats(0, 3)), max_size=40))
def test_the_file_carries_the_tests_on(readings: list[tuple[str, PlanShape, float]]) -> None:
    tracker = Tracker(GuardLimits())
    for model, shape, kl in readings:
        tracker.observe(model, shape, kl)
    again = decode_tracker(encode_tracker(tracker))
    assert again.tests == tracker.tests
    assert (again.begun, again.limits) == (tracker.begun, tracker.limits)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "semblend.guard.v2"}', "null", '{"schema": 1, "tests": 3}']
)
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        decode_tracker(text)


def test_changed_limits_keep_verdicts_and_begin_new_tests(tmp_path: Path) -> None:
    path = tmp_path / "guard.json"
    tracker = read_tracker(path, GuardLimits())
    broken(tracker)
    tracker.observe("m", REORDER, 0.01)
    write_tracker(path, tracker)
    assert read_tracker(path, GuardLimits()).tests == tracker.tests
    other = read_tracker(path, GuardLimits(ceiling_kl=0.05))
    assert list(other.tests) == [("m", EDIT)]
    assert other.begun == 2


def test_the_gate_reads_what_the_guard_wrote(tmp_path: Path) -> None:
    path, now, warnings = tmp_path / "guard.json", [0.0], list[str]()
    verdicts = Verdicts(path, clock_s=lambda: now[0], warn=warnings.append)
    assert verdicts.why_off("m", EDIT) is None
    tracker = Tracker(GuardLimits())
    broken(tracker)
    write_tracker(path, tracker)
    assert verdicts.why_off("m", EDIT) is None  # it looks once a second
    now[0] = 1.0
    assert "off" in (verdicts.why_off("m", EDIT) or "")
    assert verdicts.why_off("m", REORDER) is None
    assert verdicts.why_off("other", EDIT) is None
    path.write_text("{ torn")
    now[0] = 2.0
    assert verdicts.why_off("m", EDIT) is not None  # the last verdict stays in force
    assert "stay in force" in warnings[0]
    path.unlink()
    now[0] = 3.0
    assert verdicts.why_off("m", EDIT) is None


def test_the_sampler_is_a_share_and_always_the_same() -> None:
    ids = [f"request-{number}" for number in range(20_000)]
    taken = [each for each in ids if is_sampled(each, 0.05)]
    assert 850 < len(taken) < 1150
    assert taken == [each for each in ids if is_sampled(each, 0.05)]
    assert set(taken) <= {each for each in ids if is_sampled(each, 0.2)}
    assert not any(is_sampled(each, 0.0) for each in ids)
    assert all(is_sampled(each, 1.0) for each in ids)
