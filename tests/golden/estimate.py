"""``kvmend estimate`` on the sample log of the examples: every figure of its JSON, and the terminal's text."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from scripts.data.folder import REAL_DATA
from tests.golden.compare import as_json

from semblend.cli.main import main

ROOT: Final = Path(__file__).parents[2]


def estimated(folder: Path) -> dict[str, str]:
    log = folder / "requests.jsonl"
    subprocess.run([sys.executable, ROOT / "examples" / "make_log.py", log], check=True, capture_output=True)
    return _estimate(folder, log, "sample_log")


def estimated_shared(folder: Path) -> dict[str, str] | str:
    """A part of a real trace, where the folder with the shared data is."""
    trace = REAL_DATA / "traces" / "mooncake_conversation_trace.jsonl.gz"
    if not trace.exists():
        return "no real traces; run: make data"
    return _estimate(folder, trace, "mooncake_conversation", "--max-requests", "2000")


def _estimate(folder: Path, trace: Path, name: str, *more: str) -> dict[str, str]:
    page, figures = folder / f"{name}.html", folder / f"{name}.json"
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        code = main(["estimate", str(trace), "--output", str(page), "--json", str(figures), "--quiet", *more])
    assert code == 0, shown.getvalue()
    report: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    lines = [line for line in shown.getvalue().splitlines(keepends=True) if not line.startswith("page: ")]
    return {f"estimate/{name}.json": as_json(report), f"estimate/{name}.txt": "".join(lines)}
