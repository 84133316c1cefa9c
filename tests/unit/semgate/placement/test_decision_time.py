from __future__ import annotations

from statistics import median

import pytest
from benchmarks.router.placement.time import WARM_UP, FullFleet


@pytest.mark.slow
def test_a_decision_takes_as_long_with_a_million_blocks_as_with_ten_thousand() -> None:
    """Side by side and by the median, since the machine may be busy; milliseconds are the benchmark's to tell."""
    small, large = FullFleet(10_000), FullFleet(1_000_000)
    assert large.index.distinct_blocks() >= 1_000_000
    took = [(small.decide().cpu_us, large.decide().cpu_us) for _ in range(500 + WARM_UP)][WARM_UP:]
    of_small, of_large = (median(each) for each in zip(*took, strict=True))
    assert of_large < 3 * of_small
