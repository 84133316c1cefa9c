"""The built-in ways to choose what is computed after all. Each takes evidence of the loaded positions, gives scores."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.plan.selection import Evidence, Policy, Probe

Scores = NDArray[np.float64]
_SEED: Final = 20_26


def first(evidence: Evidence) -> Scores:
    """The heads of the runs: the same number of each, as long as they last."""
    return -evidence.distance.astype(np.float64)


def at_random(evidence: Evidence) -> Scores:
    return np.random.default_rng([_SEED, len(evidence.positions)]).random(len(evidence.positions))


def deviation(evidence: Evidence) -> Scores:
    return evidence.seen(Probe.DEVIATION).astype(np.float64)


def question(evidence: Evidence) -> Scores:
    """What the end of the prompt attends to, mean over layers and heads."""
    mean: Scores = evidence.seen(Probe.ATTENTION).mean(axis=(0, 1), dtype=np.float64)
    return mean


def question_by_deviation(evidence: Evidence) -> Scores:
    """What is both read and off: a position that nobody reads, or that came out the same, needs no repair."""
    return question(evidence) * deviation(evidence)


def question_or_deviation(evidence: Evidence) -> Scores:
    """Half of the budget for what is read, half for what is off: the better of the two ranks decides."""
    ranks = [np.argsort(np.argsort(-score, kind="stable")) for score in (question(evidence), deviation(evidence))]
    return -np.minimum(*ranks).astype(np.float64)


_ASKED: Final = frozenset({Probe.ATTENTION})
_BOTH: Final = frozenset({Probe.ATTENTION, Probe.DEVIATION})
FIRST: Final = Policy(first)
RANDOM: Final = Policy(at_random)
DEVIATION: Final = Policy(deviation, frozenset({Probe.DEVIATION}))
QUESTION: Final = Policy(question, _ASKED)
QUESTION_BY_DEVIATION: Final = Policy(question_by_deviation, _BOTH)
QUESTION_OR_DEVIATION: Final = Policy(question_or_deviation, _BOTH)
