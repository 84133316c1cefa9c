"""Experimental selection policies, registered only in this benchmark. See ``semblend.plan.selection``."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.plan.selection import POLICIES, Evidence, Policy, Probe
from semblend.plan.selection_policies import deviation, question

Scores = NDArray[np.float64]
HEAD_TOKENS: Final = 16  # of each run: what a reader expects at its start is computed in any case


def _ranks(score: Scores) -> NDArray[np.int64]:
    ranks: NDArray[np.int64] = np.argsort(np.argsort(-score, kind="stable"))
    return ranks


def stretch_or_question(evidence: Evidence) -> Scores:
    """Half of the budget is one stretch from the claim's start, exact because everything before it is; half by
    attention.
    """
    return -np.minimum(np.arange(len(evidence.positions)), _ranks(question(evidence))).astype(np.float64)


def stretch(evidence: Evidence) -> Scores:
    return -np.arange(len(evidence.positions), dtype=np.float64)


def _by_run(evidence: Evidence, weight: Scores) -> Scores:
    """Runs by their mean weight, best first, each from its head on; the heads of all runs before anything else."""
    run = np.cumsum(evidence.distance == 0) - 1
    total = np.bincount(run, weight) / np.bincount(run)
    place = _ranks(total)[run].astype(np.float64)
    order = place * (int(evidence.distance.max()) + 1) + evidence.distance
    return np.where(evidence.distance < HEAD_TOKENS, -evidence.distance / 1e6, -1.0 - order)


def whole_run(evidence: Evidence) -> Scores:
    """The whole run with the most attention from the question, then the next; of the others the first tokens."""
    return _by_run(evidence, question(evidence))


def whole_run_last(evidence: Evidence) -> Scores:
    """The run nearest the question, whole; of the others the first tokens."""
    return _by_run(evidence, evidence.positions.astype(np.float64))


def question_in_best_run(evidence: Evidence) -> Scores:
    """By attention, but only in the two runs with the most attention."""
    asked = question(evidence)
    run = np.cumsum(evidence.distance == 0) - 1
    best = _ranks(np.bincount(run, asked) / np.bincount(run))[run] < 2
    return np.where(best, asked, asked * 1e-6)


def question_or_product(evidence: Evidence) -> Scores:
    """Half of the budget by attention times deviation, half by deviation."""
    off = deviation(evidence)
    return -np.minimum(_ranks(question(evidence) * off), _ranks(off)).astype(np.float64)


def last(evidence: Evidence) -> Scores:
    """The positions nearest to the end of the prompt."""
    return evidence.positions.astype(np.float64)


def question_by_risk(evidence: Evidence) -> Scores:
    """The same, where the context differs: a position with the same context needs no recomputation."""
    return question(evidence) * np.sqrt(evidence.context_share)


def question_by_head(evidence: Evidence) -> Scores:
    """Every head has one vote over the loaded positions, however much of its attention goes to sinks or itself."""
    attention = evidence.seen(Probe.ATTENTION).astype(np.float64)
    total = np.maximum(attention.sum(axis=-1, keepdims=True), 1e-12)
    votes: Scores = (attention / total).mean(axis=(0, 1))
    return votes


def question_by_depth(evidence: Evidence) -> Scores:
    """Deeper layers count more: what was computed in another context deviates more the deeper it lies."""
    attention = evidence.seen(Probe.ATTENTION)
    depth = np.linspace(0.0, 1.0, attention.shape[0])
    weighted: Scores = np.tensordot(depth, attention.mean(axis=1, dtype=np.float64), axes=1)
    return weighted


def question_peak(evidence: Evidence) -> Scores:
    """The layer where a position matters most: what one retrieving head reads is not averaged away."""
    peak: Scores = evidence.seen(Probe.ATTENTION).mean(axis=1, dtype=np.float64).max(axis=0)
    return peak


def question_rms(evidence: Evidence) -> Scores:
    """Mean square over layers and heads (the order of its root): between the mean and the peak."""
    square: Scores = np.square(evidence.seen(Probe.ATTENTION)).mean(axis=(0, 1), dtype=np.float64)
    return square


_ASKED: Final = frozenset({Probe.ATTENTION})
_BOTH: Final = frozenset({Probe.ATTENTION, Probe.DEVIATION})
TRIALS: Final = {
    "last": Policy(last),
    "question_by_risk": Policy(question_by_risk, _ASKED),
    "question_by_head": Policy(question_by_head, _ASKED),
    "question_by_depth": Policy(question_by_depth, _ASKED),
    "question_peak": Policy(question_peak, _ASKED),
    "question_rms": Policy(question_rms, _ASKED),
    "stretch": Policy(stretch),
    "stretch_or_question": Policy(stretch_or_question, _ASKED),
    "whole_run": Policy(whole_run, _ASKED),
    "whole_run_last": Policy(whole_run_last),
    "question_in_best_run": Policy(question_in_best_run, _ASKED),
    "question_or_product": Policy(question_or_product, _BOTH),
}
for _name, _policy in TRIALS.items():
    POLICIES.register(_name, _policy)
