"""When to send: offsets in seconds from the start, drawn without looking at the server, so that it cannot slow them.

Gaps are gamma-distributed: ``burstiness`` 1 is a Poisson process, below 1 comes in bursts, above 1 is steadier.
"""

from __future__ import annotations

import random
from collections.abc import Iterator


def gamma_offsets(rate_per_s: float, burstiness: float, seed: int) -> Iterator[float]:
    """Endless. The mean gap is ``1 / rate_per_s`` whatever the burstiness."""
    draws = random.Random(f"sembench-arrivals-{seed}")
    scale = 1.0 / (rate_per_s * burstiness)
    at = 0.0
    while True:
        at += draws.gammavariate(burstiness, scale)
        yield at


def ramp_offsets(workers: int, ramp_up_s: float) -> list[float]:
    """When each worker of a closed loop sends its first request."""
    return [ramp_up_s * number / workers for number in range(workers)]
