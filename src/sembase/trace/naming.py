"""The name a trace gets from its file: no folder of anyone's machine, no suffix."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_SUFFIXES: Final = (".gz", ".jsonl", ".json", ".csv", ".parquet", ".txt")


def trace_name(path: Path) -> str:
    name = path.name
    shortened = True
    while shortened:
        shortened = False
        for suffix in _SUFFIXES:
            if name.lower().endswith(suffix) and len(name) > len(suffix):
                name, shortened = name[: -len(suffix)], True
    return name
