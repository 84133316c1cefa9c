"""Python answers, compared after parsing: a call by its name and arguments, a definition by its name and signature."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Final

from sembench.scoring.base import Score, Task, by_reading

_FENCE: Final = re.compile(r"```[\w+-]*\n")
_CALL_START: Final = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*\s*\(")
_DEFINITION_START: Final = re.compile(r"\b(?:async\s+)?def\s+\w+\s*\(")
_MAX_STARTS: Final = 8
_MAX_ENDS: Final = 32
_MAX_CHARS: Final = 2_000


def read_call(text: str, task: Task) -> str | None:
    """The first expression that parses as a call; keyword arguments in alphabetical order."""
    for start in _starts(_CALL_START, _code(text, task)):
        for end in _ends(start, ")"):
            tree = _parsed(start[:end])
            if tree is None or len(tree.body) != 1:
                continue
            body = tree.body[0]
            if isinstance(body, ast.Expr) and isinstance(body.value, ast.Call):
                return _call_text(body.value)
    return None


def read_definition(text: str, task: Task) -> str | None:
    """Name and parameters of the first definition, with their defaults and without annotations."""
    for start in _starts(_DEFINITION_START, _code(text, task)):
        for end in _ends(start, ":"):
            tree = _parsed(start[:end] + " pass")
            if tree is None or not tree.body:
                continue
            body = tree.body[0]
            if isinstance(body, ast.FunctionDef | ast.AsyncFunctionDef):
                for argument in ast.walk(body.args):
                    if isinstance(argument, ast.arg):
                        argument.annotation = None
                return f"{body.name}({ast.unparse(body.args)})"
    return None


def _call_text(call: ast.Call) -> str:
    call.keywords.sort(key=lambda keyword: keyword.arg or "")
    return ast.unparse(call)


def _code(text: str, task: Task) -> str:
    """What follows the first code fence, up to the next one; without a fence the text itself.

    An answer that continues what the prompt began is code from its start, and its first fence closes that code.
    """
    text = text[:_MAX_CHARS]
    if not (task.before and text.startswith(task.before)):
        text = _FENCE.split(text, maxsplit=1)[-1]
    return text.split("```", maxsplit=1)[0]


def _starts(pattern: re.Pattern[str], code: str) -> Iterator[str]:
    for found, _ in zip(pattern.finditer(code), range(_MAX_STARTS), strict=False):
        if not code[: found.start()].endswith("def "):
            yield code[found.start() :]


def _ends(code: str, last: str) -> Iterator[int]:
    """Where the text may end: after each of the first occurrences of ``last``."""
    place = code.find(last)
    for _ in range(_MAX_ENDS):
        if place < 0:
            return
        yield place + 1
        place = code.find(last, place + 1)


def _parsed(code: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model's code may have odd escapes
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


CALL: Final[Score] = by_reading(read_call)
DEFINITION: Final[Score] = by_reading(read_definition)
