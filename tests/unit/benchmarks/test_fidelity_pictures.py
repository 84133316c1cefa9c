"""Pictures of fidelity: an arm per row, a case per colour, in the style of the reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.fidelity.picture import Reading, chart, picture

from sembase.onepage.chart import Whiskers


def test_an_arm_is_a_row_and_a_case_a_colour() -> None:
    made = chart("KL", [Reading("a", "x", 0.1, 0.05, 0.2), Reading("a", "y", 0.01), Reading("b", "x", 0.0)])
    assert made.y.categories == ("a", "b")
    first, second = (layer for layer in made.layers if isinstance(layer, Whiskers))
    assert (first.name, second.name) == ("x", "y")
    assert first.tone != second.tone
    assert [round(each.y) for each in first.whiskers] == [0, 1]
    assert first.whiskers[1].x > 0, "a logarithmic axis has no zero"
    assert first.whiskers[0].y < second.whiskers[0].y, "cases of a row do not cover each other"


def test_intervals_below_the_axis_are_at_its_end(tmp_path: Path) -> None:
    floor = [Reading("floor", "x", 1e-9, 0.0, 2e-9)]
    made = chart("KL", floor)
    ((only,),) = (layer.whiskers for layer in made.layers if isinstance(layer, Whiskers))
    assert only.low == only.x == only.high
    assert picture("KL", floor, tmp_path / "kl.png")


def test_pictures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    assert picture("KL", [Reading("a", "x", 0.1, 0.05, 0.2)], tmp_path / "one.png") == [tmp_path / "one.png"]
    assert picture("KL", [], tmp_path / "none.png") == []
    assert {path.name for path in tmp_path.iterdir()} == {"one.png"}
