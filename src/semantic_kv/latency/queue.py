"""Arrivals and service times in; start, first token and end of each request out. First in, first out.

A request takes one of ``slots`` (it keeps it until its last token) and then one of ``lanes`` (only while it prefills).
One lane and one slot is the single server; N of each is N servers. State: one number per slot and lane.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from sembase.compiled import kernel
from sembase.errors import ContractError
from sembase.latency import Floats

_MAX_SLOTS = 1_000_000


@dataclass(frozen=True, slots=True)
class QueueTimes:
    """Per request: ``wait_ms`` from arrival to the start of the prefill, the others on the trace's clock."""

    wait_ms: Floats
    first_token_ms: Floats
    finish_ms: Floats


def fifo_queue(
    arrival_ms: Floats, prefill_ms: Floats, decode_ms: Floats | None = None, *, lanes: int = 1, slots: int | None = None
) -> QueueTimes:
    """Simulate the queue. ``slots`` None: as many as there are requests, so decoding never blocks.

    Arrivals need not be sorted; equal arrivals are served in the order given.
    """
    count = arrival_ms.shape[0]
    decode = np.zeros(count) if decode_ms is None else decode_ms
    if not (prefill_ms.shape[0] == decode.shape[0] == count):
        raise ContractError("arrivals, prefill and decode times must have the same length")
    if not 1 <= lanes <= _MAX_SLOTS or (slots is not None and not 1 <= slots <= _MAX_SLOTS):
        raise ContractError(f"lanes and slots of a queue must be between 1 and {_MAX_SLOTS:,}")
    if count and (not np.isfinite(arrival_ms).all() or min(prefill_ms.min(), decode.min()) < 0.0):
        raise ContractError("a queue needs finite arrivals and service times >= 0")
    order = np.argsort(arrival_ms, kind="stable")
    used_slots = min(count, slots if slots is not None else count)
    start, first, finish = _serve(
        arrival_ms[order].astype(np.float64),
        prefill_ms[order].astype(np.float64),
        decode[order].astype(np.float64),
        min(lanes, max(count, 1)),
        max(used_slots, 1),
    )
    back = np.empty_like(order)
    back[order] = np.arange(count)
    return QueueTimes(start[back] - arrival_ms, first[back], finish[back])


@kernel
def _serve(arrival: Floats, prefill: Floats, decode: Floats, lanes: int, slots: int) -> tuple[Floats, Floats, Floats]:
    """Both stages are entered in order of arrival, so one pass over the times at which slots become free is exact."""
    count = arrival.shape[0]
    start, first, finish = np.empty(count), np.empty(count), np.empty(count)
    slot_free = [-1e300] * slots
    lane_free = [-1e300] * lanes
    entered = -1e300
    for request in range(count):
        # First in, first out: a slot that becomes free early is still taken in order of arrival.
        entered = max(entered, arrival[request], slot_free[0])
        start[request] = max(entered, lane_free[0])
        first[request] = start[request] + prefill[request]
        finish[request] = first[request] + decode[request]
        heapq.heapreplace(lane_free, first[request])
        heapq.heapreplace(slot_free, finish[request])
    return start, first, finish
