"""Token identity is not context identity: how much of what stood before a run differs between donor and recipient."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from semblend.contract import ContextRisk
from semblend.plan.compose import DONOR, DONOR_START, LEAD, LENGTH, TARGET_START


def context_risks(pieces: NDArray[np.int64], shared_prefix: Sequence[int]) -> list[ContextRisk]:
    """One figure per piece. ``shared_prefix[d]`` counts the tokens donor ``d`` shares with the recipient from 0 on.

    Shared context is what both saw before the piece, in order: the common prefix, earlier pieces of the same donor that
    also stood earlier in that donor, and the equal tokens the piece was cut from.
    """
    risks: list[ContextRisk] = []
    earlier: dict[int, list[tuple[int, int]]] = {}  # donor -> (end in the donor, shared tokens up to there)
    for row in pieces:
        donor, donor_start, target_start, length, lead = (
            int(row[c]) for c in (DONOR, DONOR_START, TARGET_START, LENGTH, LEAD)
        )
        shared = max(
            [min(shared_prefix[donor], donor_start, target_start)]
            + [total for end, total in earlier.get(donor, ()) if end <= donor_start - lead]
        )
        shared = min(shared + lead, donor_start, target_start)
        preceding = max(donor_start, target_start)
        differing = preceding - shared
        risks.append(ContextRisk(preceding, differing, _mean_share(differing, preceding, length)))
        earlier.setdefault(donor, []).append((donor_start + length, shared + length))
    return risks


def _mean_share(differing: int, preceding: int, length: int) -> float:
    """The mean of ``differing / (preceding + i)`` over the run, by the integral instead of the sum."""
    if not differing:
        return 0.0
    return min(1.0, differing / length * math.log((preceding + length) / preceding))
