"""Every example of an extension runs and prints what its page says. One process for all: start-up takes the time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "extending").glob("*.py"))
PROGRAM = """
import runpy, sys
for path in sys.argv[1:]:
    print("#", path.rpartition("/")[2], flush=True)
    runpy.run_path(path, run_name="__main__")
"""


def test_every_example_of_an_extension_runs() -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, *map(str, EXAMPLES)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    printed = dict(part.split("\n", 1) for part in ended.stdout.split("# ")[1:])
    assert set(printed) == {path.name for path in EXAMPLES}
    assert ", MostRecentlyUsed " in printed["eviction_policy.py"]
    assert ", ShortBlocksOnly " in printed["admission_policy.py"]
    places = [line.rpartition(": ")[2] for line in printed["routing_policy.py"].splitlines()]
    assert places == ["a, shortest queue", "a, its session was here", "b, shortest queue"]
    assert printed["transform.py"].startswith("1 item; skipped: {'quoted_mail'")
    assert "> Request: Who wrote?" in printed["transform.py"]
    assert len(printed["selection_rule.py"].splitlines()) == 2
    assert printed["trace_reader.py"].startswith("2 requests, ")


def test_the_guide_names_every_example() -> None:
    guide = (ROOT / "docs" / "guides" / "extending.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES if f"examples/extending/{path.name}" not in guide] == []
