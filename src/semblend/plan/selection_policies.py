"""The built-in selection policies: each turns evidence of the reused positions into scores."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.plan.selection import Evidence, Policy, Probe

Scores = NDArray[np.float64]
_SEED: Final = 20_26


def first(evidence: Evidence) -> Scores:
    """The heads of the runs: the same number of tokens of each run, while they last."""
    return -evidence.distance.astype(np.float64)


def at_random(evidence: Evidence) -> Scores:
    return np.random.default_rng([_SEED, len(evidence.positions)]).random(len(evidence.positions))


def deviation(evidence: Evidence) -> Scores:
    return evidence.seen(Probe.DEVIATION).astype(np.float64)


def question(evidence: Evidence) -> Scores:
    """The positions the end of the prompt attends to, mean over layers and heads."""
    mean: Scores = evidence.seen(Probe.ATTENTION).mean(axis=(0, 1), dtype=np.float64)
    return mean


def question_by_deviation(evidence: Evidence) -> Scores:
    """Attention times deviation: a position that is not attended to, or does not deviate, needs no recomputation."""
    return question(evidence) * deviation(evidence)


def question_or_deviation(evidence: Evidence) -> Scores:
    """Half of the budget by attention, half by deviation: the better of the two ranks decides."""
    ranks = [np.argsort(np.argsort(-score, kind="stable")) for score in (question(evidence), deviation(evidence))]
    return -np.minimum(*ranks).astype(np.float64)


_ATTENTION: Final = frozenset({Probe.ATTENTION})
_BOTH: Final = frozenset({Probe.ATTENTION, Probe.DEVIATION})
FIRST: Final = Policy(first)
RANDOM: Final = Policy(at_random)
DEVIATION: Final = Policy(deviation, frozenset({Probe.DEVIATION}))
QUESTION: Final = Policy(question, _ATTENTION)
QUESTION_BY_DEVIATION: Final = Policy(question_by_deviation, _BOTH)
QUESTION_OR_DEVIATION: Final = Policy(question_or_deviation, _BOTH)
