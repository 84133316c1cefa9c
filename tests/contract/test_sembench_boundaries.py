"""Who may import what: the bench meets the planner at one door, and optional packages in one module each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
FOUNDATION = (
    *("semblend.contract", "sembase.errors", "sembase.registry", "semblend._version"),
    *("sembase.streams", "sembase.files", "sembase.command_line"),
)
OPTIONAL: dict[str, set[str]] = {
    "tokenizers": set(),
    "rich": {"sembench/console/rich_table.py", "sembench/replay/progress_bar.py"},
    "datasets": {"sembench/workload/sources/hub.py"},
}


def imports() -> Iterator[tuple[str, str]]:
    """(file, imported module) for every import of the bench, anywhere in the file."""
    for path in sorted((SRC / "sembench").rglob("*.py")):
        name = path.relative_to(SRC).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((name, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield name, node.module


def test_only_the_door_imports_the_planner() -> None:
    strangers = [
        (file, module)
        for file, module in imports()
        if module.partition(".")[0] == "semblend" and not module.startswith(FOUNDATION) and "/planner/" not in file
    ]
    assert strangers == []
    assert ("sembench/planner/offline.py", "semblend") in set(imports())


def test_optional_packages_have_one_home_each() -> None:
    for package, homes in OPTIONAL.items():
        assert {file for file, module in imports() if module.partition(".")[0] == package} == homes


def test_no_engine_and_no_other_package_of_ours() -> None:
    foreign = {"torch", "vllm", "sglang", "tensorrt_llm", "semantic_kv", "semgate"}
    assert [found for found in imports() if found[1].partition(".")[0] in foreign] == []


def test_modules_stay_small() -> None:
    long = {
        path.name: n for path in (SRC / "sembench").rglob("*.py") if (n := len(path.read_text().splitlines())) > 400
    }
    assert long == {}
