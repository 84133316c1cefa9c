"""No code from data: nothing here reads pickles or other formats whose readers can call functions.

Ruff (S301, S302, S506) rejects the calls it knows; this adds the imports, numpy's ``allow_pickle`` and ``torch.load``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "scripts", "benchmarks", "examples", "apps")
MODULES = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle"}
CALLS = {"torch.load", "pandas.read_pickle", "pd.read_pickle", "yaml.unsafe_load", "yaml.full_load"}


def unsafe_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names if each.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            yield node.lineno, str(node.module)
        elif isinstance(node, ast.Call):
            if (called := ast.unparse(node.func)) in CALLS:
                yield node.lineno, called
            allowed = [each.value for each in node.keywords if each.arg == "allow_pickle"]
            if any(not (isinstance(each, ast.Constant) and each.value is False) for each in allowed):
                yield node.lineno, "allow_pickle"


def test_no_module_reads_pickles() -> None:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {
        f"{path.relative_to(ROOT)}:{line}": what
        for path in files
        for line, what in unsafe_in(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_each_way_is_seen() -> None:
    for text in ("import pickle", "from marshal import loads", "torch.load(p)", "np.load(p, allow_pickle=True)"):
        assert list(unsafe_in(ast.parse(text))), text
    assert not list(unsafe_in(ast.parse("import torch; np.load(p, allow_pickle=False)")))
