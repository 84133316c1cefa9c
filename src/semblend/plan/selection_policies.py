"""The built-in selection policies: each turns evidence of the reused positions into scores."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.plan.selection import Evidence, Policy

Scores = NDArray[np.float64]


def first(evidence: Evidence) -> Scores:
    """The heads of the runs: the same number of tokens of each run, while they last."""
    return -evidence.distance.astype(np.float64)


def question(evidence: Evidence) -> Scores:
    """The positions the end of the prompt attends to, mean over layers and heads."""
    mean: Scores = evidence.measured_attention().mean(axis=(0, 1), dtype=np.float64)
    return mean


FIRST: Final = Policy(first)
QUESTION: Final = Policy(question, needs_attention=True)
