"""A base installation has three packages: every command still shows its help and version without an extra."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest

PROGRAMS = ("kvmend", "semblend", "sembench", "semantic_kv", "semgate")
BASE = {"msgspec", "numpy", "rapidfuzz"}
# Run in a fresh interpreter: packages of extras cannot be imported there, as if they were not installed.
PROGRAM = """
import importlib.abc, runpy, sys
hidden, module, words = set(sys.argv[1].split(",")), sys.argv[2], sys.argv[3:]
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in hidden:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
sys.meta_path.insert(0, Hide())
sys.argv = [module, *words]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def run(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    ours = {*PROGRAMS, "sembase", "semestimate"}
    hidden = {top for top, owners in packages_distributions().items() if not BASE & {o.lower() for o in owners}} - ours
    command = [sys.executable, "-c", PROGRAM, ",".join(sorted(hidden)), module, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("module", PROGRAMS)
def test_help_and_version_need_no_extra(module: str) -> None:
    shown = run(module, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "exit codes:" in shown.stdout
    version = run(module, "--version")
    assert version.returncode == 0
    assert version.stdout.startswith(module.replace("_", "-"))


def test_the_router_names_its_extra() -> None:
    refused = run("semgate", "router", "--replicas", "http://127.0.0.1:1")
    assert refused.returncode == 3
    assert refused.stderr.count("\n") == 1
    assert "kvmend route needs the package" in refused.stderr
