"""What differs on GPU platforms, as far as the engine's own classes show it without a GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.engines.vllm_inside.engine import KVCacheLayout
from tests.unit.semblend.integration.test_vllm_attention_cache import LAYOUTS

pytestmark = pytest.mark.engine

BASES = """
from vllm.platforms import current_platform
type(current_platform).is_cpu = lambda self: {is_cpu}
from semblend.integration.vllm.worker import SemBlendWorker
print([base.__name__ for base in SemBlendWorker.__mro__])
"""


def test_the_layouts_that_are_tested_are_those_of_the_engine() -> None:
    assert {layout.name: layout.value for layout in KVCacheLayout} == LAYOUTS


@pytest.mark.parametrize("is_cpu", [True, False])
def test_the_worker_is_the_stock_worker_of_its_platform(is_cpu: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BASES.format(is_cpu=is_cpu)], capture_output=True, text=True, timeout=300, check=True
    )
    bases = done.stdout.splitlines()[-1]
    assert "'Worker'" in bases
    assert ("CPUWorker" in bases) is is_cpu
