from __future__ import annotations

import re
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
    return run_offline(OfflineRun(manifest=manifest, output=tmp_path / "r.json", config=config))


def test_the_tables_of_a_run(result: dict[str, Any]) -> None:
    rates = rates_table(result)
    assert [row[0] for row in rates.rows] == [*result["by_transform"], "all"]
    assert all(len(row) == len(rates.columns) for row in rates.rows)
    repeat = next(row for row in rates.rows if row[0] == "exact_repeat")
    assert repeat[rates.columns.index("exact prefix")] == "100.0 %"
    datasets = datasets_table(result)
    assert datasets is not None
    assert [row[0] for row in datasets.rows] == ["fixture_reports", "fixture_records"]
    checks = checks_table(result)
    assert checks.title == "Figures that must be zero"
    assert [row[1] for row in checks.rows] == ["0.0 %", "0.0 %", "0.0 %", "0", "-", "-", "-", "-"]
    assert checks.rows[4] == ("negative controls: blocks the backend confirmed", "-", "not measured")
    ablation = ablation_table(result)
    assert ablation is not None
    assert "jaccard" in ablation.title
    for name in list(result["by_transform"]):
        if name != "stream":
            del result["by_transform"][name]
    assert [row[0] for row in rates_table(result).rows] == ["stream"]


def test_nothing_is_shown_of_what_did_not_run(manifest: Path, tmp_path: Path) -> None:
    plain = run_offline(OfflineRun(manifest=manifest, output=tmp_path / "r.json", config=ReplayConfig(), max_items=2))
    assert ablation_table(plain) is None
    assert datasets_table(plain) is None
    checks = checks_table(plain).rows
    assert checks[0][0] == "planned tokens that are not the donor's"
    assert checks[0][1] == "0.0 %"
    assert [row[1:] for row in checks[1:]] == [("-", "not measured")] * 7


def test_the_settings_of_the_planner_are_shown_below_the_table(result: dict[str, Any]) -> None:
    settings = next(note for note in rates_table(result).notes if note.startswith("Planner"))
    assert settings == (
        "Planner semblend: min reuse ratio 0.25, min similarity 0.0, min run 64 tokens, embedder jaccard, "
        "exact runs only, fuzzy chunks off, several donors."
    )
    assert result["config"]["planner"] == {
        "embedder": "jaccard",
        "exact_materialization_only": True,
        "fuzzy_chunks": False,
        "kind": "semblend",
        "min_reuse_ratio": 0.25,
        "min_run_tokens": 64,
        "min_similarity": 0.0,
        "multi_donor": True,
    }


def test_a_narrow_terminal_gets_the_short_table(
    result: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [rates_table(result), datasets_table(result), checks_table(result), ablation_table(result)]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    for table in tables:
        assert table is not None
        show(table)
        shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
        assert max(map(len, shown.splitlines())) <= 80
        assert all(row[0] in shown for row in table.rows)
        words = shown.split()
        assert all(word in words for note in table.notes for word in note.split())
    show(tables[0])  # type: ignore[arg-type]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["exact", "any", "context"]
    assert lines[2].split() == ["transform", "requests", "prefix", "position", "eligible", "lift", "risk"]


def test_a_pipe_keeps_the_wide_table(
    result: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show(rates_table(result))
    assert capsys.readouterr().out == plain_text(rates_table(result))
