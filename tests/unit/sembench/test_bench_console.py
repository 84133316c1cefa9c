from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sembench.console import Table, plain_text, show
from sembench.console.offline import ablation_table, checks_table, datasets_table, rates_table
from sembench.console.table import number, percent
from sembench.planner import PlannerConfig
from sembench.replay import progress
from sembench.replay.offline import OfflineRun, run_offline
from sembench.replay.session import ReplayConfig

TABLE = Table("A title", ("name", "n"), (("alpha", "1"), ("b", "1,234")), ("a note [with brackets]",))


def test_plain_tables_align() -> None:
    assert plain_text(TABLE) == (
        "A title\nname       n\n-----  -----\nalpha      1\nb      1,234\na note [with brackets]\n\n"
    )


def test_what_was_not_measured_is_a_dash_and_zero_is_zero() -> None:
    assert [percent(v) for v in (None, 0.0, 1e-9, -0.0001, 0.1234, -0.5)] == [
        "-",
        "0.0 %",
        "< 0.1 %",
        "0.0 %",
        "12.3 %",
        "-50.0 %",
    ]
    assert [number(v) for v in (None, 0, 1234)] == ["-", "0", "1,234"]


def test_a_terminal_gets_a_drawn_table_a_pipe_a_plain_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich")
    show(TABLE)
    assert capsys.readouterr().out == plain_text(TABLE)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show(TABLE)
    drawn = capsys.readouterr().out
    assert drawn != plain_text(TABLE)
    for cell in ("alpha", "1,234", "a note [with brackets]"):
        assert cell in drawn


def test_progress_passes_everything_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    assert list(progress.watch("abcd", 4, "replay")) == list("abcd")
    assert capsys.readouterr().err.splitlines() == ["replay: 3/4 done, about 3 s left", "replay: 4/4 done in 15.0 s"]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(progress.watch("abcd", 4, "replay")) == list("abcd")
    assert "4/4" in capsys.readouterr().err


@pytest.fixture
def result(manifest: Path, tmp_path: Path) -> dict[str, Any]:
    config = ReplayConfig(planner=PlannerConfig(embedder="jaccard"))
    return run_offline(OfflineRun(manifest, tmp_path / "r.json", config))


def test_the_tables_of_a_run(result: dict[str, Any]) -> None:
    rates = rates_table(result)
    assert [row[0] for row in rates.rows] == [*result["by_transform"], "all"]
    assert all(len(row) == len(rates.columns) for row in rates.rows)
    repeat = next(row for row in rates.rows if row[0] == "exact_repeat")
    assert repeat[rates.columns.index("exact prefix")] == "100.0 %"
    datasets = datasets_table(result)
    assert datasets is not None
    assert [row[0] for row in datasets.rows] == ["fixture_reports", "fixture_records"]
    assert [row[1] for row in checks_table(result).rows] == ["0.0 %"] * 4
    ablation = ablation_table(result)
    assert ablation is not None
    assert "jaccard" in ablation.title
    for name in list(result["by_transform"]):
        if name != "stream":
            del result["by_transform"][name]
    assert [row[0] for row in rates_table(result).rows] == ["stream"]


def test_nothing_is_shown_of_what_did_not_run(manifest: Path, tmp_path: Path) -> None:
    plain = run_offline(OfflineRun(manifest, tmp_path / "r.json", ReplayConfig(), max_items=2))
    assert ablation_table(plain) is None
    assert datasets_table(plain) is None
    assert [row[0] for row in checks_table(plain).rows] == ["planned tokens that are not the donor's"]
