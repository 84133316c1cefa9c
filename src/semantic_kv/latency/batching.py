"""Times of requests on an engine with continuous batching: passes that decode every stream and prefill the rest.

As vLLM schedules: each pass takes one token per decoding stream and fills its token budget with prompts in order of
arrival, cutting the last one. For calibration it also says which amounts of work each first token waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sembase.compiled import kernel, kernel_part
from sembase.errors import ContractError
from sembase.latency import PAIRS_PER_UNIT, Engine, Floats, LatencyModel, Numbers

Longs = npt.NDArray[np.int64]
WORK: Final = (
    "step_ms",
    "ms_per_uncached_token",
    "ms_per_million_pairs",
    "ms_per_cached_token",
    "ms_per_decoding_stream",
)


@dataclass(frozen=True, slots=True)
class BatchedTimes:
    """Per request, on the trace's clock. ``*_work[r]`` are the amounts, in the order of ``WORK``, that the engine did
    between arrival and first token, and between first and last: times coefficients (plus base) they are the times."""

    first_token_ms: Floats
    finish_ms: Floats
    first_token_work: Floats
    decode_work: Floats


def batched_times(
    arrival_ms: Floats,
    uncached_tokens: Numbers,
    cached_tokens: Numbers,
    output_tokens: Numbers,
    model: LatencyModel,
    engine: Engine | None = None,
) -> BatchedTimes:
    """Simulate the engine. ``base_ms`` is spent outside it. An output below one token counts as one: the first."""
    chosen = engine or Engine()
    count = arrival_ms.shape[0]
    uncached, cached, output = (
        np.asarray(column, dtype=np.int64) for column in (uncached_tokens, cached_tokens, output_tokens)
    )
    if not (uncached.shape[0] == cached.shape[0] == output.shape[0] == count):
        raise ContractError("arrivals and token counts must have the same length")
    if count and (not np.isfinite(arrival_ms).all() or min(int(uncached.min()), int(cached.min())) < 0):
        raise ContractError("an engine's queue needs finite arrivals and token counts >= 0")
    order = np.argsort(arrival_ms, kind="stable")
    price = np.array([getattr(model, name) for name in WORK])
    first, finish, before, after = _run(
        arrival_ms[order].astype(np.float64),
        # The last prompt token is always computed: its logits are the first answer token.
        np.maximum(uncached[order], 1),
        cached[order],
        np.maximum(output[order], 1),
        price,
        np.array([chosen.pass_tokens, chosen.slots], dtype=np.int64),
        PAIRS_PER_UNIT,
    )
    back = np.empty_like(order)
    back[order] = np.arange(count)
    return BatchedTimes(first[back] + model.base_ms, finish[back] + model.base_ms, before[back], after[back])


# Positions in the counters of a run: streams that decode; requests with their first token, begun, and arrived.
_STREAMS, _HEAD, _BEGUN, _ARRIVED = range(4)


@kernel_part
def _fill_pass(
    left: Longs, uncached: Longs, cached: Longs, at: Longs, limits: Longs, pairs_per_unit: float, work: Floats
) -> None:
    """What this pass computes, into ``work``: a token for every stream, then prompts in order until it is full."""
    work[:] = 0.0
    work[0], work[4] = 1.0, float(at[_STREAMS])
    budget = max(limits[0] - at[_STREAMS], 0)
    turn = at[_HEAD]
    while turn < at[_ARRIVED] and budget > 0:
        if turn >= at[_BEGUN]:
            if at[_STREAMS] + at[_BEGUN] - at[_HEAD] >= limits[1]:
                return
            at[_BEGUN] += 1
            work[3] += float(cached[turn])
        chunk = min(left[turn], budget)
        preceding = float(cached[turn] + uncached[turn] - left[turn])
        work[1] += float(chunk)
        work[2] += (float(chunk) * preceding + float(chunk) * float(chunk + 1) / 2.0) / pairs_per_unit
        left[turn] -= chunk
        budget -= chunk
        turn += 1


@kernel_part
def _let_in(arrival: Floats, now: float, took: float, done: Floats, work: Floats, before: Floats, at: Longs) -> None:
    """Requests that arrive during the pass wait for the rest of it; record the work done before they arrived."""
    while at[_ARRIVED] < arrival.shape[0] and arrival[at[_ARRIVED]] <= now + took:
        elapsed = (arrival[at[_ARRIVED]] - now) / took if took > 0.0 else 1.0
        for kind in range(done.shape[0]):
            before[at[_ARRIVED], kind] = done[kind] + elapsed * work[kind]
        at[_ARRIVED] += 1


@kernel_part
def _decode(streams: Longs, now: float, done: Floats, finish: Floats, after: Floats, at: Longs) -> None:
    """Every stream got a token; those with all of theirs leave. Rows of ``streams``: request, tokens to come."""
    place = 0
    while place < at[_STREAMS]:
        streams[place, 1] -= 1
        if streams[place, 1] > 0:
            place += 1
            continue
        who = streams[place, 0]
        finish[who] = now
        for kind in range(done.shape[0]):
            after[who, kind] = done[kind] - after[who, kind]
        at[_STREAMS] -= 1
        streams[place, 0], streams[place, 1] = streams[at[_STREAMS], 0], streams[at[_STREAMS], 1]


@kernel
def _run(
    arrival: Floats,
    uncached: Longs,
    cached: Longs,
    output: Longs,
    price: Floats,
    limits: Longs,
    pairs_per_unit: float,
) -> tuple[Floats, Floats, Floats, Floats]:
    """One turn of the loop is one pass of the engine; ``done`` is the work done so far, in the order of ``WORK``."""
    count, kinds = arrival.shape[0], price.shape[0]
    first, finish = np.empty(count), np.empty(count)
    before, after = np.zeros((count, kinds)), np.zeros((count, kinds))
    left = uncached.copy()
    streams, at = np.empty((limits[1], 2), dtype=np.int64), np.zeros(4, dtype=np.int64)
    done, work, now = np.zeros(kinds), np.zeros(kinds), 0.0
    while at[_HEAD] < count or at[_STREAMS] > 0:
        if at[_STREAMS] == 0 and at[_HEAD] == at[_ARRIVED]:  # idle: advance to the next arrival
            now = arrival[at[_HEAD]]
            work[:] = 0.0
            _let_in(arrival, now, 0.0, done, work, before, at)
        _fill_pass(left, uncached, cached, at, limits, pairs_per_unit, work)
        took = 0.0
        for kind in range(kinds):
            took += price[kind] * work[kind]
        _let_in(arrival, now, took, done, work, before, at)
        now += took
        for kind in range(kinds):
            done[kind] += work[kind]
        _decode(streams, now, done, finish, after, at)
        while at[_HEAD] < at[_BEGUN] and left[at[_HEAD]] == 0:
            who = at[_HEAD]
            first[who] = finish[who] = now
            for kind in range(kinds):
                before[who, kind] = done[kind] - before[who, kind]
            if output[who] > 1:
                after[who] = done
                streams[at[_STREAMS], 0], streams[at[_STREAMS], 1] = who, output[who] - 1
                at[_STREAMS] += 1
            at[_HEAD] += 1
    return first, finish, before, after
