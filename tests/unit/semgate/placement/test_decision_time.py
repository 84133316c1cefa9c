from __future__ import annotations

import pytest
from benchmarks.router.placement.time import decision_times


@pytest.mark.slow
def test_a_decision_takes_less_than_a_millisecond_with_a_million_blocks() -> None:
    """Processor time: on a shared machine the wall clock tells about the neighbours."""
    cpu, _, blocks = decision_times(requests=1_000)
    assert blocks >= 1_000_000
    assert cpu.p99 <= 1_000.0
