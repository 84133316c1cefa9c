"""Every module of src is used by src: what only tests or benchmarks import belongs to them.

Used is what another module imports, what a string names (targets of registries, paths that an engine loads), an entry
point, and what the promised descriptions or a Python example of the guides name.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.contract.test_import_circles import ROOT, module_files

SRC = ROOT / "src"
_EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
_DOTTED = re.compile(r"\w+(?:\.\w+)+\.?")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def strings(tree: ast.AST) -> Iterator[str]:
    """Strings that are values: not docstrings. Of an f-string each constant part."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def named(texts: Iterable[str]) -> set[str]:
    """Every dotted name in the texts and all that it begins with. ``package.`` at the end of a text, to which a name is
    added when it runs, stays with its dot and stands for every module of the package."""
    found: set[str] = set()
    for text in texts:
        for name in _DOTTED.findall(text):
            parts = name.rstrip(".").split(".")
            found.update(".".join(parts[:count]) for count in range(2, len(parts) + 1))
            if name.endswith(".") and text.endswith(name):
                found.add(name)
    return found


def unused_modules(files: dict[str, Path], others: Iterable[str]) -> list[str]:
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in files.items()}
    used = {module for name, tree in trees.items() for module in imported(tree) if module != name}
    used |= named([*others, *(text for tree in trees.values() for text in strings(tree))])
    return [
        name
        for name, path in files.items()
        if path.name not in ("__init__.py", "__main__.py")
        and name not in used
        and f"{name.rpartition('.')[0]}." not in used
    ]


def promised() -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for group in (project["scripts"], *project["entry-points"].values()):
        yield from group.values()
    yield (ROOT / "docs" / "reference" / "seeds.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        yield from _EXAMPLE.findall(page.read_text(encoding="utf-8"))


def test_no_module_of_src_is_only_for_tests_or_benchmarks() -> None:
    files = {name: path for name, path in module_files().items() if SRC in path.parents}
    unused = unused_modules(files, promised())
    assert not unused, f"nothing in src uses {', '.join(unused)}: remove them, or move them to what imports them"


def test_a_module_that_nothing_names_is_found(tmp_path: Path) -> None:
    top = '"""See p.alone."""\nfrom p.used import thing\nTARGET = "p.by_name:THING"\nLAZY = f"p.kinds.{1}:KIND"'
    sources = {"p": top} | dict.fromkeys(("p.used", "p.by_name", "p.by_names", "p.kinds.one", "p.face", "p.alone"), "")
    files = {}
    for name, source in sources.items():
        files[name] = tmp_path / ("__init__.py" if name == "p" else f"{name}.py")
        files[name].write_text(source)
    assert unused_modules(files, ["from p.face import Thing"]) == ["p.by_names", "p.alone"]
