"""The base install has no compiler: the same laws hold with numpy alone, only slower."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
sys.modules["numba"] = None
import random
from sembase.compiled import HAS_COMPILER
from tests.unit.semblend.pipeline import test_planner_laws as laws
assert not HAS_COMPILER
complete = laws.test_every_equal_run_is_planned_and_every_planned_token_is_equal.hypothesis.inner_test
boilerplate = laws.test_boilerplate_in_every_donor_hides_no_continuation.hypothesis.inner_test
for seed in range(4):
    for vocabulary in (1, 3, 50_000):
        complete(rng=random.Random(seed), vocabulary=vocabulary, donor_count=12)
    boilerplate(seed=seed, copies=12, tail=seed + 1)
print("laws hold")
"""


def test_the_laws_hold_without_a_compiler() -> None:
    root = Path(__file__).parents[4]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "laws hold" in run.stdout
