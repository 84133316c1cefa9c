"""The built-in selection policies: each turns evidence of the reused positions into scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from semblend.plan.selection import Evidence, Policy, Probe

Scores = NDArray[np.float64]
_SEED: Final = 20_26
Known = TypeVar("Known", bound=Evidence)


def ranks_of(scores: Scores) -> NDArray[np.int64]:
    """0 for the best; equal scores in the order of positions."""
    ranks: NDArray[np.int64] = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
    return ranks


def either(*rules: Callable[[Known], Scores]) -> Callable[[Known], Scores]:
    """An equal part of the budget for each rule: the best of a position's ranks decides."""

    def score(evidence: Known) -> Scores:
        best: Scores = -np.min([ranks_of(rule(evidence)) for rule in rules], axis=0).astype(np.float64)
        return best

    return score


def product(*rules: Callable[[Known], Scores]) -> Callable[[Known], Scores]:
    def score(evidence: Known) -> Scores:
        whole: Scores = np.prod([rule(evidence) for rule in rules], axis=0)
        return whole

    return score


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


# A position that is not attended to, or does not deviate, needs no recomputation.
question_by_deviation: Final = product(question, deviation)
# Half of the budget for each: the better of the two ranks decides.
question_or_deviation: Final = either(question, deviation)

_ATTENTION: Final = frozenset({Probe.ATTENTION})
_BOTH: Final = frozenset({Probe.ATTENTION, Probe.DEVIATION})
FIRST: Final = Policy(first)
RANDOM: Final = Policy(at_random)
DEVIATION: Final = Policy(deviation, frozenset({Probe.DEVIATION}))
QUESTION: Final = Policy(question, _ATTENTION)
QUESTION_BY_DEVIATION: Final = Policy(question_by_deviation, _BOTH)
QUESTION_OR_DEVIATION: Final = Policy(question_or_deviation, _BOTH)
