"""The names of the engine tests do not depend on the order of a set: two workers that collect must agree. Tests that
share a server go to one worker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.engines.conftest import server_of

ROOT = Path(__file__).parents[2]


@cache
def collected(seed: int) -> list[str]:
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "engine",
            "tests/engines",
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in run.stdout.splitlines() if "::" in line]


def test_the_engine_tests_have_the_same_names_under_every_hash_seed() -> None:
    first = collected(1)
    assert len(first) > 100
    assert collected(2) == first


def test_a_file_with_a_server_of_its_own_goes_to_one_worker() -> None:
    groups: dict[str, set[str]] = defaultdict(set)
    for name in collected(1):
        groups[name.partition("::")[0]].add(server_of(name))
    shared = {file for file, found in groups.items() if len(found) > 1}
    assert all(file.startswith("tests/engines/vllm/connector/") for file in shared), shared


def test_what_skips_without_torch_runs_where_torch_is() -> None:
    """The tier without models has no torch, so such a file would be skipped everywhere without the marker."""
    needs = [path for path in (ROOT / "tests").rglob("test_*.py") if 'importorskip("torch' in path.read_text("utf-8")]
    needs.remove(Path(__file__))
    assert needs
    assert [path.name for path in needs if "pytest.mark.models" not in path.read_text("utf-8")] == []
