"""State of the compiled loop for reuse beyond the prefix: donors, repairs, the engine's clock, returns of sessions.

Memory: 21 bytes per known node, 64 rows of the longest request.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import Cache, size_of
from semantic_kv.policy.reuse import (
    BUSY_STEPS_PER_SLICE,
    MAX_HELD_FRACTION,
    MAX_JOBS,
    MAX_OPEN,
    PREFIX,
    PRIOR_WEIGHT,
    PRIORS,
    RETURN_WINDOW_MS,
    SLICE_TOKENS,
    Reuse,
)
from sembase.compiled import kernel_part
from sembase.latency import PAIRS_PER_UNIT

# positions in `Blend.limits`
MODE, MIN_RUN, BOUNDARY, MAX_HELD, MIN_INEXACT = range(5)
# positions in `Blend.price`
RATIO, PER_TOKEN, PER_UNIT_OF_PAIRS, PER_CACHED, PER_LOADED, STEP, PER_DECODED = range(7)
# columns of `Blend.jobs`; a job without a serial number is free
SERIAL, LENGTH, EXACT, EXACT_TOKENS, PRIVATE, SIZE = range(6)
# columns of `Blend.progress`
READY_MS, DONE = range(2)
# positions in `Blend.counts`
RUNNING, SERIALS, HELD, OPENED, EXPIRED, BLENDED, REUSED_TOKENS, REPAIRED_TOKENS, PUBLISHED = range(9)
# positions in `Blend.clock`
NOW_MS, PREFILL_FREE_MS, BUSY_UNTIL_MS, REPAIR_MS = range(4)
USED_BY_REQUEST: Final = 1  # bits of `Cache.pinned`
HELD_BY_REPAIR: Final = 2


class Blend(NamedTuple):
    limits: NDArray[np.int64]
    price: NDArray[np.float64]
    content: NDArray[np.int32]
    is_exact: NDArray[np.uint8]  # a node's KV was computed exactly, now or earlier
    has_donor: NDArray[np.uint8]  # by content
    holds: NDArray[np.uint8]  # repairs that hold a node
    is_reused: NDArray[np.uint8]  # by position in the request being served
    jobs: NDArray[np.int64]
    progress: NDArray[np.float64]
    rows: NDArray[np.int32]
    counts: NDArray[np.int64]
    clock: NDArray[np.float64]
    answered: NDArray[np.int8]  # by node: how the answer ended + 1 that a return would continue; 0: none
    answered_ms: NDArray[np.float64]
    opened: NDArray[np.int32]  # ring of nodes with an answer
    opened_ms: NDArray[np.float64]
    returns: NDArray[np.float64]  # by ending: [answers, returns]


def make_blend(reuse: Reuse, capacity: int, content: NDArray[np.int32], longest: int) -> Blend:
    """Empty arrays where nothing is reused beyond the prefix."""
    is_off = reuse.mode == PREFIX
    nodes, jobs, longest = (0, 0, 0) if is_off else (len(content), MAX_JOBS, longest)
    model = reuse.latency
    return Blend(
        np.array(
            [
                reuse.mode,
                reuse.min_run_tokens,
                reuse.boundary_recompute_tokens,
                int(MAX_HELD_FRACTION * capacity),
                reuse.min_inexact_tokens,
            ],
            np.int64,
        ),
        np.array(
            [
                reuse.min_reuse_ratio,
                model.ms_per_uncached_token,
                model.ms_per_million_pairs,
                model.ms_per_cached_token,
                model.ms_per_loaded_block,
                model.step_ms,
                model.step_ms + model.ms_per_decoding_stream,
            ]
        ),
        np.empty(0, np.int32) if is_off else content.astype(np.int32),
        np.zeros(nodes, np.uint8),
        np.zeros(nodes, np.uint8),
        np.zeros(nodes, np.uint8),
        np.zeros(longest, np.uint8),
        np.full((jobs, 6), -1, np.int64),
        np.zeros((jobs, 2)),
        np.zeros((jobs, longest), np.int32),
        np.zeros(9, np.int64),
        np.zeros(4),
        np.zeros(nodes, np.int8),
        np.zeros(nodes),
        np.zeros(0 if is_off else MAX_OPEN, np.int32),
        np.zeros(0 if is_off else MAX_OPEN),
        np.zeros((len(PRIORS), 2)),
    )


@kernel_part
def plan_reuse(cache: Cache, blend: Blend, row: NDArray[np.int32], start: int) -> int:
    """Tokens reused beyond the first ``start`` blocks, 0 where the gates refuse. Marks the blocks in ``is_reused``.

    The last block is computed: its logits are the first answer token.
    """
    missed = 0
    reused = 0
    run = 0
    run_tokens = 0
    for position in range(start, len(row)):
        node = int(row[position])
        missed += int(cache.tokens[node])
        blend.is_reused[position] = 0
        is_last = position == len(row) - 1
        if not is_last and blend.is_exact[node] == 0 and blend.has_donor[blend.content[node]]:
            run += 1
            run_tokens += int(cache.tokens[node])
            continue
        if run_tokens >= blend.limits[MIN_RUN] and run_tokens > blend.limits[BOUNDARY]:
            reused += run_tokens - int(blend.limits[BOUNDARY])
            for back in range(position - run, position):
                blend.is_reused[back] = 1
        run = 0
        run_tokens = 0
    return reused if reused >= max(1, blend.limits[MIN_INEXACT], blend.price[RATIO] * missed) else 0


@kernel_part
def note_donor(blend: Blend, row: NDArray[np.int32]) -> None:
    """Every block of the row was computed exactly."""
    for position in range(len(row)):
        blend.is_exact[row[position]] = 1
        blend.has_donor[blend.content[row[position]]] = 1


@kernel_part
def note_arrival(blend: Blend, row: NDArray[np.int32], now_ms: float) -> None:
    """Count the answers that this prompt continues, and those that were not continued in time."""
    ring = len(blend.opened)
    while blend.counts[EXPIRED] < blend.counts[OPENED]:
        at = blend.counts[EXPIRED] % ring
        is_full = blend.counts[OPENED] - blend.counts[EXPIRED] > ring - 1
        is_late = blend.opened_ms[at] < now_ms - RETURN_WINDOW_MS
        if not (is_full or is_late):
            break
        node = blend.opened[at]
        if blend.answered[node] > 0 and blend.answered_ms[node] == blend.opened_ms[at]:
            if is_late:
                blend.returns[blend.answered[node] - 1, 0] += 1.0
            blend.answered[node] = 0
        blend.counts[EXPIRED] += 1
    for position in range(len(row)):
        node = row[position]
        if blend.answered[node] > 0:
            blend.returns[blend.answered[node] - 1, 0] += 1.0
            blend.returns[blend.answered[node] - 1, 1] += 1.0
            blend.answered[node] = 0


@kernel_part
def note_answer(cache: Cache, blend: Blend, row: NDArray[np.int32], ending: int, at_ms: float) -> None:
    """A later prompt that contains the last full block of this one continues its session."""
    last = len(row) - 1
    if last > 0 and cache.tokens[row[last]] < cache.tokens[row[0]]:
        last -= 1
    if last < 0:
        return
    node = row[last]
    at = blend.counts[OPENED] % len(blend.opened)
    blend.answered[node] = ending + 1
    blend.answered_ms[node] = at_ms
    blend.opened[at] = node
    blend.opened_ms[at] = at_ms
    blend.counts[OPENED] += 1


@kernel_part
def likelihood(blend: Blend, ending: int) -> float:
    """That the session comes back after an answer that ended like this."""
    prior = PRIORS[ending] * PRIOR_WEIGHT
    return float((blend.returns[ending, 1] + prior) / (blend.returns[ending, 0] + PRIOR_WEIGHT))


@kernel_part
def serve_ms(blend: Blend, uncached: int, cached: int, loaded_blocks: int, output: int, now_ms: float) -> float:
    """Advance the engine's clock by one request: prefill in order of arrival, then decoding. Returns its end."""
    pairs = (float(uncached) * cached + uncached * (uncached + 1.0) / 2.0) / PAIRS_PER_UNIT
    prefill = blend.price[STEP] + blend.price[PER_TOKEN] * uncached + blend.price[PER_UNIT_OF_PAIRS] * pairs
    prefill += blend.price[PER_CACHED] * cached + blend.price[PER_LOADED] * loaded_blocks
    blend.clock[PREFILL_FREE_MS] = max(now_ms, blend.clock[PREFILL_FREE_MS]) + prefill
    end = float(blend.clock[PREFILL_FREE_MS] + blend.price[PER_DECODED] * max(0, output - 1))
    blend.clock[BUSY_UNTIL_MS] = max(blend.clock[BUSY_UNTIL_MS], end)
    return end


@kernel_part
def repair_cost_ms(blend: Blend, tokens: int, before: int) -> float:
    """Engine time to compute ``tokens`` after ``before`` others, in slices."""
    pairs = (float(tokens) * before + tokens * (tokens + 1.0) / 2.0) / PAIRS_PER_UNIT
    return float(
        blend.price[PER_TOKEN] * tokens
        + blend.price[PER_UNIT_OF_PAIRS] * pairs
        + blend.price[STEP] * tokens / SLICE_TOKENS
    )


@kernel_part
def busy_wait_ms(blend: Blend, tokens: int) -> float:
    """How long busy steps take to repair ``tokens``: one slice in so many steps."""
    return float(blend.price[PER_DECODED] * BUSY_STEPS_PER_SLICE / SLICE_TOKENS * tokens)


@kernel_part
def next_job(blend: Blend, now_ms: float) -> int:
    """The newest job whose request has answered by now, or -1."""
    best = -1
    for job in range(blend.jobs.shape[0]):
        if blend.jobs[job, SERIAL] < 0 or blend.progress[job, READY_MS] > now_ms:
            continue
        if best < 0 or blend.jobs[job, SERIAL] > blend.jobs[best, SERIAL]:
            best = job
    return best


@kernel_part
def oldest_job(blend: Blend) -> int:
    """The job that makes room, or -1."""
    oldest = -1
    for job in range(blend.jobs.shape[0]):
        if blend.jobs[job, SERIAL] >= 0 and (oldest < 0 or blend.jobs[job, SERIAL] < blend.jobs[oldest, SERIAL]):
            oldest = job
    return oldest


@kernel_part
def next_ready_ms(blend: Blend, now_ms: float) -> float:
    """When the next request that waits for repair has answered; infinite if there is none."""
    soonest = np.inf
    for job in range(blend.jobs.shape[0]):
        if blend.jobs[job, SERIAL] >= 0 and now_ms < blend.progress[job, READY_MS] < soonest:
            soonest = blend.progress[job, READY_MS]
    return float(soonest)


@kernel_part
def row_size(cache: Cache, row: NDArray[np.int32]) -> int:
    size = 0
    for position in range(len(row)):
        size += size_of(cache, int(row[position]))
    return size
