"""Run by the engine's interpreter: prints, as JSON, how many stubbed names were compared and which no longer fit.

A class must exist with its methods (same parameter names and kinds) and attributes; an attribute is a field, an
annotation, a class value or something assigned to ``self`` in the class or one of its bases.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

moved: list[str] = []
compared = 0


def modules(root: Path) -> list[tuple[str, ast.Module]]:
    found = []
    for path in sorted(root.rglob("*.pyi")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append((name, ast.parse(path.read_text())))
    return found


def check(where: str, holds: bool, problem: str) -> bool:
    global compared
    compared += 1
    if not holds:
        moved.append(f"{where}: {problem}")
    return holds


def stub_parameters(node: ast.FunctionDef) -> list[str]:
    arguments = node.args
    names = [a.arg for a in arguments.posonlyargs + arguments.args]
    names += ["*" + arguments.vararg.arg] if arguments.vararg else []
    names += ["=" + a.arg for a in arguments.kwonlyargs]
    names += ["**" + arguments.kwarg.arg] if arguments.kwarg else []
    return names


def real_parameters(function: Any) -> list[str]:
    signs: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.KEYWORD_ONLY: "=",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    parameters = inspect.signature(inspect.unwrap(function)).parameters.values()
    return [signs.get(p.kind, "") + p.name for p in parameters]


def compare_function(where: str, node: ast.FunctionDef, real: Any) -> None:
    decorators = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
    if "property" in decorators:
        is_value = isinstance(real, property) or (hasattr(real, "__get__") and not inspect.isfunction(real))
        check(where, is_value, "is no longer a property")
        return
    function = real.__func__ if isinstance(real, classmethod | staticmethod) else real
    if not check(where, callable(function), "is no longer a function"):
        return
    check(where, isinstance(real, classmethod) == ("classmethod" in decorators), "is (not) a class method")
    expected, found = stub_parameters(node), real_parameters(function)
    check(where, expected == found, f"parameters were {expected} and are {found}")


def assigned_names(cls: type) -> set[str]:
    """Everything a reader of the source would call an attribute of ``cls``."""
    names: set[str] = set(getattr(cls, "__struct_fields__", ()))
    for base in cls.__mro__[:-1]:
        names |= set(vars(base)) | set(vars(base).get("__annotations__", {}))
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):
            continue
        names |= set(re.findall(r"self\.(\w+)\s*(?:[:=]|,.*=)", source))
    return names


def compare_class(where: str, node: ast.ClassDef, real: Any) -> None:
    if not check(where, inspect.isclass(real), "is no longer a class"):
        return
    names = assigned_names(real)
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            member = inspect.getattr_static(real, item.name, None)
            if check(f"{where}.{item.name}", member is not None, "is gone"):
                compare_function(f"{where}.{item.name}", item, member)
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            check(f"{where}.{item.target.id}", item.target.id in names, "is gone")
        elif isinstance(item, ast.Assign):
            for target in item.targets:
                if isinstance(target, ast.Name):
                    check(f"{where}.{target.id}", target.id in names, "is gone")


def compare_module(name: str, tree: ast.Module) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        check(name, False, f"cannot be imported: {error}")
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            real = getattr(module, node.name, None)
            where = f"{name}.{node.name}"
            if not check(where, real is not None, "is gone"):
                continue
            if isinstance(node, ast.ClassDef):
                compare_class(where, node, real)
            else:
                compare_function(where, node, real)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            for target in targets:
                if isinstance(target, ast.Name):
                    check(f"{name}.{target.id}", hasattr(module, target.id), "is gone")
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.asname:  # a name this module gives on
                    check(f"{name}.{alias.asname}", hasattr(module, alias.asname), "is gone")


for module_name, module_tree in modules(Path(sys.argv[1])):
    compare_module(module_name, module_tree)
print("RESULT " + json.dumps({"compared": compared, "moved": moved}))
