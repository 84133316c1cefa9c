"""Arithmetic of the fidelity bench: divergences, rightness without decoding, and intervals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.fidelity.__main__ import answer_verdict, target_verdicts
from benchmarks.fidelity.arm import OPEN_GATES, Arm, parse_arm
from benchmarks.fidelity.figures import Figures, Row, answers_of, declined_of, done_in, figures_of, wilson
from benchmarks.fidelity.readings import gap, reading_of

from sembase.errors import ConfigurationError
from semblend.plan.gates import ADAPTER_GATES
from semblend.plan.selection import Selection


def logprobs(rows: list[list[float]]) -> np.ndarray:
    return np.log(np.asarray(rows, np.float32))


def test_equal_readings_have_no_gap() -> None:
    text = np.array([0, 1])
    reading = reading_of(logprobs([[0.7, 0.3], [0.2, 0.8]]), text)
    found = gap(reading, reading, text, 1)
    assert found.mean_kl == pytest.approx(0, abs=1e-9)
    assert (found.ppl_ratio, found.top1, found.cold_right, found.right) == (1.0, 1.0, True, True)


def test_gap_is_the_divergence_by_hand() -> None:
    text = np.array([0])
    cold, other = reading_of(logprobs([[0.75, 0.25]]), text), reading_of(logprobs([[0.5, 0.5]]), text)
    found = gap(cold, other, text, 0)
    assert found.mean_kl == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), rel=1e-5)
    assert found.ppl_ratio == pytest.approx(1.5, rel=1e-5)
    assert found.right is None


def test_a_flip_is_a_right_answer_lost() -> None:
    text = np.array([0, 1])
    cold = reading_of(logprobs([[0.7, 0.3], [0.2, 0.8]]), text)
    other = reading_of(logprobs([[0.7, 0.3], [0.6, 0.4]]), text)
    assert gap(cold, other, text, 2).right is False
    assert gap(cold, other, text, 1).right is True


def row(arm: str, kl: float, *, right: bool = True, computed: int = 10) -> dict[str, object]:
    return {
        "arm": arm,
        "case": "c",
        "source": "s",
        "kl": [kl] * 4,
        "answer_kl": [kl / 2] * 4,
        "answer_kept": right,
        "log_loss": 0.0,
        "top1": 1.0,
        "cold_right": True,
        "right": right,
        "cold_ms": 100.0,
        "first_token_ms": 20.0,
        "computed_tokens": computed,
        "claimed_tokens": 100,
        "groups": 3,
    }


def figures(*rows: dict[str, object]) -> list[Figures]:
    return [one for one in figures_of(rows) if one.case == "c"]


def test_figures_carry_numerator_and_denominator() -> None:
    (one,) = figures(row("a", 0.1), row("a", 0.3, right=False, computed=30))
    assert (one.flips, one.answerable, one.items) == (1, 2, 2)
    assert one.kl_mean.estimate == pytest.approx(0.2)
    assert one.kl_worst == pytest.approx(0.3)
    assert one.answer_kl.estimate == pytest.approx(0.1)
    assert one.kept == 1
    assert one.computed_share == pytest.approx(0.2)
    assert one.ttft_ratio is not None
    assert one.ttft_ratio.estimate == pytest.approx(5.0)


def test_probes_are_counted_separately() -> None:
    (one,) = figures({**row("a", 0.1), "probe_share": 0.08}, {**row("a", 0.1), "probe_share": 0.04})
    assert (one.computed_share, one.probe_share, one.whole_share) == pytest.approx((0.1, 0.06, 0.16))


@pytest.mark.parametrize(("probe_share", "reached"), [(0.05, 0.1), (0.2, None)])
def test_a_target_is_judged_without_probes_and_with_them(probe_share: float, reached: float | None) -> None:
    made = figures_of([{**row("question@0.1", 0.1), "case": "reorder", "probe_share": probe_share}])
    seen = [each.measured for each in target_verdicts(made) if each.name.startswith("reorder")]
    half = None if reached is None else reached / 2
    assert seen == pytest.approx([0.05, half, 0.1, reached])


def test_no_event_in_a_hundred_may_still_be_four_percent() -> None:
    assert pytest.approx((0.0, 1.96**2 / (100 + 1.96**2))) == wilson(0, 100)
    assert pytest.approx((0.4038, 0.5962), abs=1e-4) == wilson(50, 100)
    assert wilson(0, 0) is None


def test_arms_are_read_and_refused() -> None:
    arm = parse_arm("question@0.2+2")
    assert (arm.selection, arm.gates) == (Selection("question", 0.2, 2), OPEN_GATES)
    assert parse_arm("default").selection is None
    assert parse_arm("default@0") == Arm("default@0", Selection("question", 0.0), gates=ADAPTER_GATES)
    wide = replace(ADAPTER_GATES, max_context_share=1.0)
    assert parse_arm("wide@0.05") == Arm("wide@0.05", Selection("question", 0.05), gates=wide)
    assert parse_arm("wide:first@0.05") == Arm("wide:first@0.05", Selection("first", 0.05), gates=wide)
    for wrong in ("question=0.2", "narrow:question@0.2"):
        with pytest.raises(ConfigurationError, match="invalid arm"):
            parse_arm(wrong)


def test_what_was_left_to_the_engine_is_counted_and_in_no_mean() -> None:
    rows: list[Row] = [row("default", 0.01), {"arm": "default", "case": "c", "item": "i", "declined": "context_risk"}]
    assert declined_of(rows) == {("default", "c"): 1}
    assert [one.items for one in figures_of(rows) if one.case == "c"] == [1]


def test_default_is_an_arm_with_the_gates_of_a_deployment() -> None:
    assert parse_arm("default").gates == ADAPTER_GATES
    assert parse_arm("first@0").gates == OPEN_GATES


def test_a_run_continues_after_the_last_whole_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert done_in(path) == set()
    whole = json.dumps({"item": "i", "arm": "a"}) + "\n"
    path.write_text(whole + '{"item": "i", "ar')
    assert done_in(path) == {("i", "a")}
    assert path.read_text() == whole


def answered(arm: str, item: str, *, right: bool | None, cold_right: bool | None = True) -> Row:
    return {"arm": arm, "item": item, "case": "c", "source": "facts", "cold_right": cold_right, "right": right}


def test_a_flip_that_the_floor_has_too_is_not_beyond_it() -> None:
    rows = [
        *(answered("floor", item, right=item != "noisy") for item in ("kept", "lost", "noisy", "hard")),
        answered("a", "kept", right=True),
        answered("a", "lost", right=False),
        answered("a", "noisy", right=False),
        answered("a", "hard", right=False, cold_right=False),
        answered("a", "open", right=None, cold_right=None),
        {"arm": "a", "item": "left", "case": "c", "declined": "context_risk"},
    ]
    one, whole = answers_of(rows)
    assert (one.group, whole.group) == ("c, facts", "all")
    assert (one.asked, one.answerable, one.flips, one.floor_flips, one.beyond) == (4, 3, 2, 1, 1)
    assert one.shown().startswith("answerable: 3 of 4, flips: 2, beyond the floor: 1 (95 % interval 6.1% to 79.2%)")


@pytest.mark.parametrize(("items", "measured"), [(99, None), (100, 1)])
def test_few_answerable_items_show_nothing(items: int, measured: int | None) -> None:
    rows = [answered("default", str(i), right=i > 0) for i in range(items)]
    assert answer_verdict(answers_of(rows)).measured == measured
