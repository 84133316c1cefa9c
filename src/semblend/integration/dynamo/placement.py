"""From evidence to a worker: an exact token counts whole, an expected one in part. No evidence, no interference."""

from __future__ import annotations

from dataclasses import dataclass

from sembase.errors import ConfigurationError
from semblend.contract import Decline, Outcome
from semblend.integration.dynamo.provider import PlacementEvidence, Worker, WorkerEvidence


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """``confidence``: what a token that is only expected is worth beside one the router knows to be cached.

    ``min_gain_tokens``: by how much a worker must be ahead of the best exact one; less is left to exact and load.
    """

    confidence: float = 0.5
    min_gain_tokens: int = 256

    def __post_init__(self) -> None:
        if not 0.0 <= self.confidence < 1.0 or self.min_gain_tokens < 1:
            raise ConfigurationError("confidence lies in [0, 1), so that exact wins; min_gain_tokens is at least 1")


@dataclass(frozen=True, slots=True)
class Placement:
    """``worker`` None: the router's own choice stands. Placement is not reuse; only the backend confirms that."""

    outcome: Outcome
    worker: Worker | None
    reason: str
    evidence: PlacementEvidence | None = None


def place(answer: PlacementEvidence | Decline, rule: PlacementRule) -> Placement:
    if isinstance(answer, Decline):
        return Placement(answer.outcome, None, answer.reason.value)
    best = max(answer.workers, key=lambda entry: _worth(entry, rule))
    exact = max(entry.exact_tokens for entry in answer.workers)
    if best.semantic_tokens and _worth(best, rule) - exact >= rule.min_gain_tokens:
        return Placement(Outcome.SEMANTIC_PLACEMENT, best.worker, "", answer)
    outcome = Outcome.EXACT_PREFIX if exact else Outcome.SEMANTIC_DISCOVERY_ONLY
    return Placement(outcome, None, "not enough beyond the exact overlap", answer)


def _worth(entry: WorkerEvidence, rule: PlacementRule) -> float:
    return entry.exact_tokens + rule.confidence * entry.semantic_tokens
