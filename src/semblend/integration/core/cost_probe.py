"""A few forward passes at start-up, in memory that is not used yet: what computing costs before anything is served."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from semblend.contract import TokenRange
from semblend.plan.reuse_cost import Timing, Work, pass_work

PROBE_TOKENS: Final = 128
PROBE_ROWS: Final = 16
MAX_CONTEXT: Final = 4096
MIN_TIMED_TOKENS: Final = 64  # of an engine's own pass: shorter ones say little about prefill
REPEATS: Final = 2  # the faster one counts: the machine may have paused in the other

Compute = Callable[[Sequence[TokenRange]], object]


def probe(
    compute: Compute, room: int, *, many_rows: bool = True, clock: Callable[[], float] = time.perf_counter
) -> tuple[Timing, ...]:
    """Times of passes that differ in one unit of work each. ``room``: positions that may be written."""
    end = min(room, MAX_CONTEXT)
    tokens = min(PROBE_TOKENS, end // 4)
    if tokens < 2 * PROBE_ROWS:
        return ()
    shapes = [[TokenRange(0, tokens)], [TokenRange(0, tokens // 8)], [TokenRange(end - tokens, end)]]
    if many_rows:
        step = end // (2 * PROBE_ROWS)
        shapes.append([TokenRange(at, at + 1) for at in range(end - PROBE_ROWS * step, end, step)])
    return tuple(_timed(compute, shape, clock) for shape in shapes)


def _timed(compute: Compute, shape: Sequence[TokenRange], clock: Callable[[], float]) -> tuple[Work, float]:
    seconds = []
    for _ in range(REPEATS):
        started = clock()
        compute(shape)
        seconds.append(clock() - started)
    return pass_work(shape), min(seconds) * 1e3
