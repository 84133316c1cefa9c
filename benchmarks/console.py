"""Tables on the console and one JSON file per run under ``results/``."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scripts.data.folder import BANNER, DATA, is_made_up

from benchmarks.documents import ROOT
from benchmarks.targets import Verdict

RESULTS = ROOT / "results"
_WIDTH = 200


def console() -> Console:
    """Wide enough for the tables when the output is a file."""
    probe = Console()
    return probe if probe.is_terminal else Console(width=_WIDTH)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table = Table(title=title, title_justify="left", show_lines=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    console().print(table)


def show_verdicts(verdicts: Sequence[Verdict]) -> None:
    rows = [
        (
            verdict.name,
            f"{verdict.comparison} {verdict.limit:g} {verdict.unit}".rstrip(),
            None if verdict.measured is None else f"{verdict.measured:.4g}",
            verdict.word,
        )
        for verdict in verdicts
    ]
    show_table("Targets and laws", ("what", "target", "measured", "verdict"), rows)


def progress(text: str) -> None:
    load = os.getloadavg()[0]
    print(f"[{time.strftime('%H:%M:%S')} load {load:.1f}] {text}", flush=True)


def environment() -> dict[str, Any]:
    """What a reader must know to judge the figures."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "planner_digest": _planner_digest(),
        "data": "made up" if is_made_up(DATA) else "real",
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _planner_digest() -> str:
    """Which planner was measured: figures of another digest are figures of another planner."""
    total = hashlib.sha256()
    for path in sorted((ROOT / "src" / "semblend").rglob("*.py")):
        total.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return total.hexdigest()[:16]


def write_results(name: str, record: dict[str, Any]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"environment": environment(), **record}) + "\n")
    if is_made_up(DATA):
        print(BANNER, file=sys.stderr, flush=True)
    return path


def exit_code(verdicts: Sequence[Verdict], enforce: bool) -> int:
    """A broken law always fails; a target that was not reached fails only when asked to."""
    broken = [verdict for verdict in verdicts if not verdict.holds and (verdict.is_law or enforce)]
    return 1 if broken else 0
