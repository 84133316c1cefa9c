"""Packages do not grow: each has a budget of lines, which is lowered when something is removed."""

from __future__ import annotations

from pathlib import Path

from scripts.line_budget import ROOT, Budget, lines_in, lowered, problems, read_budget, write_budget


def test_each_folder_is_within_its_budget() -> None:
    budget = read_budget()
    found = problems(budget, {folder: lines_in(ROOT / folder) for folder in budget.lines})
    assert not found, "\n".join(found)


def test_each_package_has_a_budget() -> None:
    packages = {f"src/{path.name}" for path in (ROOT / "src").iterdir() if path.is_dir()}
    assert packages | {"tests", "benchmarks", "scripts"} == read_budget().lines.keys()


def test_a_budget_is_only_lowered(tmp_path: Path) -> None:
    budget, found = Budget(True, {"a": 100, "b": 100, "c": 100}), {"a": 101, "b": 99, "c": 90}
    over, under = problems(budget, found)
    assert over.startswith("a has 101 lines, 1 more")
    assert under.startswith("c has 90 lines")
    write_budget(lowered(budget, found), tmp_path / "table.toml")
    assert read_budget(tmp_path / "table.toml") == Budget(True, {"a": 100, "b": 99, "c": 90})
    assert len(problems(Budget(False, budget.lines), found)) == 1, "only the upper bound holds"
