"""Kept texts and how a difference from them is shown. ``python -m tests.golden --write`` accepts a change."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

KEPT: Final = Path(__file__).parent / "kept"
SHOWN_LINES: Final = 80
DIGITS: Final = 6  # significant ones: libraries and processors may differ in the last


def rounded(value: Any) -> Any:
    """``value`` as JSON allows it, with floats that are the same on every machine."""
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {str(key): rounded(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [rounded(each) for each in value]
    raise TypeError(f"{type(value).__name__} has no form in a golden file")


def as_json(value: Any) -> str:
    return json.dumps(rounded(value), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def as_lines(lines: Sequence[str]) -> str:
    return "".join(f"{line.rstrip()}\n" for line in lines)


def difference(name: str, found: str) -> str:
    """Empty if the text is the kept one, else what a person reads to judge the change."""
    path = KEPT / name
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    if kept == found:
        return ""
    lines = list(
        difflib.unified_diff(kept.splitlines(), found.splitlines(), f"kept/{name}", "found now", lineterm="", n=2)
    )
    more = [f"... and {len(lines) - SHOWN_LINES} more lines"] if len(lines) > SHOWN_LINES else []
    return "\n".join([*lines[:SHOWN_LINES], *more])


def write(name: str, text: str) -> bool:
    """Whether the file changed."""
    path = KEPT / name
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True
