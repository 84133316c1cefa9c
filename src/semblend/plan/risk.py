"""Token identity is not context identity: how much of the context before a run differs between donor and recipient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel
from semblend.contract import ContextRisk
from semblend.plan.compose import COLUMNS, DIFFERING, DONOR_START, LENGTH, TARGET_START, ascending

NEIGHBOURS: Final = 64  # earlier runs of a donor that a run is compared with


def in_context(rows: NDArray[np.int64], shared_prefix: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """The runs (donor, donor start, target start, length), ``ascending``, each with the tokens before it that donor and
    recipient do not share. Their number is the same at every position of a run.

    Shared context is what precedes the run in both, in the same order: the common prefix, of which
    ``shared_prefix[d]`` counts the tokens that donor ``d`` has, and the longest chain of other runs of the same donor,
    whether or not they are part of the plan, each counted up to where the next one begins in donor and recipient.
    """
    runs: NDArray[np.int64] = _in_context(ascending(rows), np.asarray(shared_prefix, np.int64))
    return runs


@kernel
def _in_context(rows: NDArray[np.int64], shared_prefix: NDArray[np.int64]) -> NDArray[np.int64]:
    shared = np.empty(len(rows), np.int64)
    latest = np.full(len(shared_prefix), -1, np.int64)
    earlier = np.empty(len(rows), np.int64)
    runs = np.empty((len(rows), COLUMNS), np.int64)
    for j in range(len(rows)):
        donor = rows[j, 0]
        chain = min(shared_prefix[donor], rows[j, 1], rows[j, 2])
        i = latest[donor]
        for _ in range(NEIGHBOURS):
            if i < 0:
                break
            between = min(rows[i, 3], rows[j, 1] - rows[i, 1], rows[j, 2] - rows[i, 2])
            if between > 0:
                chain = max(chain, shared[i] + between)
            i = earlier[i]
        shared[j] = chain
        earlier[j] = latest[donor]
        latest[donor] = j
        runs[j, :4] = rows[j]
        runs[j, 4] = max(rows[j, 1], rows[j, 2]) - chain
    return runs


def context_risks(pieces: NDArray[np.int64]) -> list[ContextRisk]:
    preceding = np.maximum(pieces[:, DONOR_START], pieces[:, TARGET_START])
    rows = zip(preceding.tolist(), pieces[:, DIFFERING].tolist(), pieces[:, LENGTH].tolist(), strict=True)
    return [risk_of(before, differing, length) for before, differing, length in rows]


def risk_of(preceding: int, differing: int, length: int) -> ContextRisk:
    """With the mean of ``differing / (preceding + i)`` over the run, by the integral instead of the sum."""
    mean = differing / length * math.log((preceding + length) / preceding) if differing else 0.0
    return ContextRisk(preceding, differing, min(1.0, mean))


def mean_shares(runs: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean fraction of ``risk_of`` for all runs at once, not limited to 1."""
    preceding = np.maximum(np.maximum(runs[:, DONOR_START], runs[:, TARGET_START]), 1)
    shares: NDArray[np.float64] = runs[:, DIFFERING] / runs[:, LENGTH] * np.log1p(runs[:, LENGTH] / preceding)
    return shares
