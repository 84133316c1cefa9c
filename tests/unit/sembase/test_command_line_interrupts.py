"""The exit code of an interrupted command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from sembase.command_line import exit_code_of

def command():
    {interrupt}

raise SystemExit(exit_code_of("program", command, "run it again"))
"""


@pytest.mark.parametrize("interrupt", ["raise KeyboardInterrupt", "exec('raise KeyboardInterrupt')"])
def test_an_interrupt_ends_with_130_wherever_it_came(interrupt: str, tmp_path: Path) -> None:
    """Inside an ``exec`` of text, as when a dataclass is made, CPython remembers the interrupt."""
    (tmp_path / "interrupted_program.py").write_text(PROGRAM.format(interrupt=interrupt), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted_program"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "program: interrupted; run it again\n")
