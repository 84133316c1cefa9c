"""No module of ours imports itself in a circle, through however many others, at module level or inside a function.

Imports under ``if TYPE_CHECKING`` do not count: they never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TREES = {
    "benchmarks": ROOT,
    "scripts": ROOT,
    **{path.parent.name: ROOT / "src" for path in ROOT.glob("src/*/__init__.py")},
}
Graph = dict[str, set[str]]


def module_files() -> dict[str, Path]:
    found = {}
    for package, base in TREES.items():
        for path in (base / package).rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_that_run(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for each in node.orelse:
            yield from imports_that_run(each)
        return
    for child in ast.iter_child_nodes(node):
        yield from imports_that_run(child)


def imported_modules(tree: ast.AST, known: set[str]) -> set[str]:
    """The modules named by a file's imports; a package counts only when it is imported for a name of its own."""
    names: set[str] = set()
    for node in imports_that_run(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif node.module is not None and node.level == 0:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & known
            names.update(submodules)
            if len(submodules) < len(node.names):
                names.add(node.module)
    return names & known


def import_graph(files: dict[str, Path]) -> Graph:
    return {
        name: imported_modules(ast.parse(path.read_text(encoding="utf-8")), set(files)) for name, path in files.items()
    }


def circles(graph: Graph) -> list[set[str]]:
    """Strongly connected components of two or more modules (Tarjan's algorithm), and modules that import themselves."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            component = set(stack[stack.index(module) :])
            del stack[stack.index(module) :]
            if len(component) > 1 or module in graph[module]:
                found.append(component)

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return found


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = import_graph(module_files())
    assert len(graph) > 300
    assert circles(graph) == []


def test_a_circle_through_a_function_is_found_and_one_for_types_is_not() -> None:
    sources = {
        "a": "import b",
        "b": "def f():\n    from c import x",
        "c": "from d.e import y\nimport a",
        "d": "from d.e import y",
        "d.e": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\nfrom d import f",
        "f": "import b",
    }
    graph = {name: imported_modules(ast.parse(text), set(sources)) for name, text in sources.items()}
    assert sorted(map(sorted, circles(graph))) == [["a", "b", "c"], ["d", "d.e"]]
