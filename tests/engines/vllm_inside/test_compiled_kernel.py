"""The move kernel compiles for a device that is not here: no spills, rows in accesses of 128 bits."""

from __future__ import annotations

import pytest
from benchmarks.kernels.compiled import FORMS, TARGETS, assembler, compile_move

pytestmark = pytest.mark.engine


def test_the_kernel_compiles_for_hopper_without_spills() -> None:
    if not assembler(90).exists():
        pytest.skip(f"this build of Triton has no assembler at {assembler(90)}")
    found = compile_move(FORMS[0], TARGETS["sm_90"])
    assert found.spilled_bytes == 0
    assert found.shared_bytes == 0
    assert found.wide >= 8, "two loads and two stores of K and V each"
    assert found.narrow == 0
    assert found.registers <= 64, "more would halve the programs that run at a time"
