"""Several runs of one model as one table: items are counted once, each against the floor of its own run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.answers.table import lines_of, read_runs
from tests.unit.sembench.test_bench_flips import RIGHT, WRONG, arm, pair, result_of

from sembase.errors import ConfigurationError
from sembench.metrics.rows import RequestRow
from sembench.result import write_result

FIRST = [pair(1, RIGHT, WRONG), pair(2, RIGHT, RIGHT), pair(3, RIGHT, RIGHT, reused=0)]
SECOND = [pair(4, RIGHT, WRONG), pair(5, WRONG, RIGHT)]


def kept(folder: Path, rows: list[RequestRow], floor: list[RequestRow] | None = None, model: str = "m") -> Path:
    folder.mkdir()
    for name, own in (("result", rows), ("floor", floor)):
        if own is not None:
            write_result(folder / f"{name}.json", result_of(own, model=model)[0])
    return folder


def cold_again(number: int, score: float) -> RequestRow:
    row = pair(number, arm(f"cold.i{number}", "7", score, contaminated=False), RIGHT)
    return replace(row, warm=None, backend=None, backend_confirmed_blocks=None)


def test_items_of_all_runs_are_counted_each_against_its_own_floor(tmp_path: Path) -> None:
    folders = [
        kept(tmp_path / "a", FIRST, [cold_again(1, 0.0)]),  # a second cold run loses item 1, too
        kept(tmp_path / "b", SECOND, [cold_again(4, 1.0)]),
    ]
    (line,) = lines_of(*read_runs(folders))
    figures = dict(zip(("served", "right cold", "lost", "beyond floor"), (line[2], *line[10:13]), strict=True))
    assert figures == {"served": "4 of 5", "right cold": 3, "lost": 2, "beyond floor": 1}


def test_a_run_without_a_floor_loses_what_it_lost(tmp_path: Path) -> None:
    (line,) = lines_of(*read_runs([kept(tmp_path / "a", FIRST)]))
    assert line[10:13] == (2, 1, 1)


def test_runs_of_two_models_are_rejected(tmp_path: Path) -> None:
    folders = [kept(tmp_path / "a", FIRST), kept(tmp_path / "b", SECOND, model="another")]
    with pytest.raises(ConfigurationError, match="different models"):
        read_runs(folders)


def test_an_item_that_is_in_two_runs_is_rejected(tmp_path: Path) -> None:
    folders = [kept(tmp_path / "a", FIRST), kept(tmp_path / "b", FIRST)]
    with pytest.raises(ConfigurationError, match="in two of the runs"):
        read_runs(folders)
