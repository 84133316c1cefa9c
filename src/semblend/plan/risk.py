"""Token identity is not context identity: how much of the context before a run differs between donor and recipient."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel
from semblend.contract import ContextRisk
from semblend.plan.compose import DONOR, DONOR_START, LENGTH, TARGET_START


def context_risks(pieces: NDArray[np.int64], shared_prefix: Sequence[int]) -> list[ContextRisk]:
    """One risk per piece. ``shared_prefix[d]`` counts the tokens that donor ``d`` and the recipient share from 0 on.

    Shared context is what precedes the piece in both, in the same order: the common prefix, earlier pieces of the same
    donor that are also earlier in that donor, and the equal tokens the piece was cut from.
    """
    if not len(pieces):
        return []
    ends = pieces[:, DONOR_START] + pieces[:, LENGTH]
    order = np.lexsort((ends, pieces[:, DONOR]))
    shared = _shared_before(pieces, ends, order, np.array(shared_prefix, np.int64)).tolist()
    preceding = np.maximum(pieces[:, DONOR_START], pieces[:, TARGET_START]).tolist()
    lengths = pieces[:, LENGTH].tolist()
    return [
        risk_of(before, before - same, length) for before, same, length in zip(preceding, shared, lengths, strict=True)
    ]


@kernel
def _shared_before(
    pieces: NDArray[np.int64], ends: NDArray[np.int64], order: NDArray[np.int64], shared_prefix: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each piece, the longest chain of context in the same order in donor and recipient.

    ``order`` sorts pieces by donor and by where they end in it. Each donor's stretch of that order carries a Fenwick
    tree of maxima: the best chain among earlier pieces that end at or before a position of the donor, in log time.
    """
    count = len(pieces)
    first = np.zeros(len(shared_prefix) + 1, np.int64)
    place = np.empty(count, np.int64)
    sorted_ends = np.empty(count, np.int64)
    for i in range(count):
        place[order[i]] = i
        sorted_ends[i] = ends[order[i]]
        first[pieces[i, 0] + 1] += 1
    for donor in range(len(shared_prefix)):
        first[donor + 1] += first[donor]
    best = np.zeros(count + 1, np.int64)
    last_end = np.zeros(len(shared_prefix), np.int64)
    shared = np.empty(count, np.int64)
    for i in range(count):
        donor = pieces[i, 0]
        lead = pieces[i, 4]
        head = min(pieces[i, 1], pieces[i, 2])
        base = first[donor]
        size = first[donor + 1] - base
        chain = min(shared_prefix[donor], head)
        # The lead counts separately only if no earlier piece of this donor overlaps it in the recipient.
        apart = last_end[donor] <= pieces[i, 2] - lead
        last_end[donor] = pieces[i, 2] + pieces[i, 3]
        node = np.searchsorted(sorted_ends[base : base + size], pieces[i, 1] - (lead if apart else 0), side="right")
        while node > 0:
            chain = max(chain, best[base + node])
            node -= node & -node
        shared[i] = min(chain + lead if apart else max(chain, lead), head)
        node = place[i] - base + 1
        while node <= size:
            best[base + node] = max(best[base + node], shared[i] + pieces[i, 3])
            node += node & -node
    return shared


def risk_of(preceding: int, differing: int, length: int) -> ContextRisk:
    """With the mean of ``differing / (preceding + i)`` over the run, by the integral instead of the sum."""
    mean = differing / length * math.log((preceding + length) / preceding) if differing else 0.0
    return ContextRisk(preceding, differing, min(1.0, mean))
