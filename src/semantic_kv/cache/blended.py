"""Blended requests and their repair, as parts of the compiled loop (`loop.specialise` fills in the policies' hooks)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semantic_kv.cache.blend_state import (
    BLENDED,
    BUSY_UNTIL_MS,
    DONE,
    EXACT,
    EXACT_TOKENS,
    HELD,
    HELD_BY_REPAIR,
    LENGTH,
    MAX_HELD,
    MODE,
    NOW_MS,
    PER_DECODED,
    PRIVATE,
    PUBLISHED,
    READY_MS,
    REPAIR_MS,
    REPAIRED_TOKENS,
    REUSED_TOKENS,
    RUNNING,
    SERIAL,
    SERIALS,
    SIZE,
    Blend,
    busy_wait_ms,
    likelihood,
    next_job,
    next_ready_ms,
    note_answer,
    note_donor,
    oldest_job,
    repair_cost_ms,
    row_size,
    serve_ms,
)
from semantic_kv.policy.interface import CAPACITY, FINISH, OUTPUT_TOKENS, RESIDENT, USED, Cache, size_of
from semantic_kv.policy.reuse import IDLE, LIKELY, MIN_LIKELIHOOD

if TYPE_CHECKING:
    from semantic_kv.cache.loop import (
        Tally,
        _expel,
        _note,
        admit_on_hit,
        admit_on_miss,
        on_admit,
        on_hit,
        on_miss,
        on_release,
        victim,
    )


def _end_job(cache: Cache, evict: Any, blend: Blend, job: int) -> None:
    """Give the blocks back: private ones are freed, exact ones become evictable, deepest first."""
    for position in range(blend.jobs[job, EXACT] - 1, -1, -1):
        node = int(blend.rows[job, position])
        blend.holds[node] -= 1
        if blend.holds[node] == 0:
            cache.pinned[node] &= 255 - HELD_BY_REPAIR
            if cache.pinned[node] == 0:
                on_release(cache, evict, node)
    cache.counts[USED] -= blend.jobs[job, PRIVATE]
    blend.counts[HELD] -= blend.jobs[job, SIZE]
    blend.counts[RUNNING] -= 1
    blend.jobs[job, SERIAL] = -1


def _stop_repairs(cache: Cache, evict: Any, blend: Blend) -> bool:
    """A request lacks blocks: end every repair. What was published stays. Returns whether there was one."""
    if blend.counts[RUNNING] == 0:
        return False
    for job in range(blend.jobs.shape[0]):
        if blend.jobs[job, SERIAL] >= 0:
            _end_job(cache, evict, blend, job)
    return True


def _take_private(
    cache: Cache, evict: Any, admit: Any, tally: Tally, blend: Blend, row: NDArray[np.int32], start: int
) -> int:
    """Allocate private blocks for a blended request. Returns their size, -1 if there was no room for all."""
    private = 0
    is_open = True
    for position in range(start, len(row)):
        node = int(row[position])
        on_miss(cache, evict, node)
        admit_on_miss(cache, admit, node)
        size = size_of(cache, node)
        while is_open and cache.counts[USED] + size > cache.counts[CAPACITY]:
            leaving = victim(cache, evict, node)
            if leaving >= 0:
                _expel(cache, evict, admit, tally, leaving)
            elif not _stop_repairs(cache, evict, blend):
                is_open = False
        if is_open:
            cache.counts[USED] += size
            private += size
    if not is_open:
        cache.counts[USED] -= private
        return -1
    return private


def _publish(cache: Cache, evict: Any, admit: Any, tally: Tally, blend: Blend, job: int) -> None:
    """The job's next block is exact: it enters the cache in the place of a private one."""
    node = int(blend.rows[job, blend.jobs[job, EXACT]])
    size = size_of(cache, node)
    cache.counts[USED] -= size
    blend.jobs[job, PRIVATE] -= size
    if cache.children[node] < 0:
        cache.children[node] = 0
        cache.pinned[node] = HELD_BY_REPAIR
        cache.counts[USED] += size
        cache.counts[RESIDENT] += 1
        if cache.parent[node] >= 0:
            cache.children[cache.parent[node]] += 1
        blend.counts[PUBLISHED] += 1
        _note(tally, node)
        on_admit(cache, evict, node)
    elif cache.pinned[node] == 0:
        cache.pinned[node] = HELD_BY_REPAIR
        on_hit(cache, evict, node)
        admit_on_hit(cache, admit, node)
    else:
        cache.pinned[node] |= HELD_BY_REPAIR
    blend.holds[node] += 1
    blend.is_exact[node] = 1
    blend.counts[REPAIRED_TOKENS] += cache.tokens[node]
    blend.jobs[job, EXACT] += 1
    blend.jobs[job, EXACT_TOKENS] += cache.tokens[node]
    blend.progress[job, DONE] = 0.0
    if blend.jobs[job, EXACT] == blend.jobs[job, LENGTH]:
        note_donor(blend, blend.rows[job, : blend.jobs[job, LENGTH]])
        _end_job(cache, evict, blend, job)


def _repair_until(cache: Cache, evict: Any, admit: Any, tally: Tally, blend: Blend, now_ms: float) -> None:
    """Repair in the steps that have room until ``now_ms``."""
    at = blend.clock[NOW_MS]
    while blend.counts[RUNNING] > 0 and at < now_ms:
        is_idle = at >= blend.clock[BUSY_UNTIL_MS]
        until = now_ms if is_idle else min(now_ms, blend.clock[BUSY_UNTIL_MS])
        job = next_job(blend, at)
        if job < 0 and is_idle:
            break
        if job < 0:
            at = min(until, next_ready_ms(blend, at))
            continue
        if not is_idle and (blend.limits[MODE] != LIKELY or blend.price[PER_DECODED] == 0.0):
            at = until
            continue
        tokens = int(cache.tokens[blend.rows[job, blend.jobs[job, EXACT]]])
        cost = repair_cost_ms(blend, tokens, int(blend.jobs[job, EXACT_TOKENS]))
        whole = cost if is_idle else max(cost, busy_wait_ms(blend, tokens))
        left = 1.0 - blend.progress[job, DONE]
        if at + left * whole <= until:
            at += left * whole
            blend.clock[REPAIR_MS] += left * cost
            _publish(cache, evict, admit, tally, blend, job)
        else:
            part = (until - at) / whole
            blend.progress[job, DONE] += part
            blend.clock[REPAIR_MS] += part * cost
            at = until
    blend.clock[NOW_MS] = now_ms


def _begin_job(cache: Cache, evict: Any, blend: Blend, row: NDArray[np.int32], start: int, private: int) -> bool:
    """Whether the blended request is repaired. Its private blocks then stay, and its exact ones are held."""
    size = row_size(cache, row)
    ending = int(cache.facts[FINISH]) + 1
    room = blend.limits[MAX_HELD] - size
    if private < 0 or blend.limits[MODE] < IDLE or room < 0:
        return False
    if blend.limits[MODE] == LIKELY and likelihood(blend, ending) < MIN_LIKELIHOOD:
        return False
    while blend.counts[RUNNING] > 0 and (blend.counts[RUNNING] == blend.jobs.shape[0] or blend.counts[HELD] > room):
        _end_job(cache, evict, blend, oldest_job(blend))
    free = -1
    for job in range(blend.jobs.shape[0]):
        if blend.jobs[job, SERIAL] >= 0:
            length = blend.jobs[job, LENGTH]
            if length <= len(row) and row[length - 1] == blend.rows[job, length - 1]:
                _end_job(cache, evict, blend, job)  # a later turn of the same session replaces it
        if blend.jobs[job, SERIAL] < 0:
            free = job
    tokens = 0
    for position in range(start):
        node = int(row[position])
        tokens += int(cache.tokens[node])
        blend.holds[node] += 1
        cache.pinned[node] |= HELD_BY_REPAIR
    for position in range(len(row)):
        blend.rows[free, position] = row[position]
    blend.jobs[free, SERIAL] = blend.counts[SERIALS]
    blend.jobs[free, LENGTH] = len(row)
    blend.jobs[free, EXACT] = start
    blend.jobs[free, EXACT_TOKENS] = tokens
    blend.jobs[free, PRIVATE] = private
    blend.jobs[free, SIZE] = size
    blend.progress[free, READY_MS] = np.inf  # until the request has answered
    blend.progress[free, DONE] = 0.0
    blend.counts[SERIALS] += 1
    blend.counts[HELD] += size
    blend.counts[RUNNING] += 1
    return True


def _serve_blend(
    cache: Cache, evict: Any, blend: Blend, row: NDArray[np.int32], start: int, hit: int, reused: int, private: int
) -> None:
    """After the request's blocks were looked up and allocated: donors, repair, the engine's clock."""
    prompt = 0
    for position in range(len(row)):
        prompt += int(cache.tokens[row[position]])
    loaded = 0
    is_repaired = False
    if reused == 0:
        note_donor(blend, row)
    else:
        blend.counts[BLENDED] += 1
        blend.counts[REUSED_TOKENS] += reused
        for position in range(start, len(row)):
            loaded += blend.is_reused[position]
        is_repaired = _begin_job(cache, evict, blend, row, start, private)
        if not is_repaired and private > 0:
            cache.counts[USED] -= private
    end_ms = serve_ms(
        blend, prompt - hit - reused, hit + reused, loaded, int(cache.facts[OUTPUT_TOKENS]), float(cache.now_ms[0])
    )
    note_answer(cache, blend, row, int(cache.facts[FINISH]) + 1, end_ms)
    if is_repaired:
        for job in range(blend.jobs.shape[0]):
            if blend.jobs[job, SERIAL] == blend.counts[SERIALS] - 1:
                blend.progress[job, READY_MS] = end_ms


BLENDED_PARTS = (_end_job, _stop_repairs, _take_private, _publish, _repair_until, _begin_job, _serve_blend)
