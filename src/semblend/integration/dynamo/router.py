"""Wraps Dynamo's own KV router: it reports each worker's exact overlap, we add evidence, it routes and keeps its state.

``SemanticRouter.generate`` takes what ``KvRouter.generate`` takes. Without evidence the call passes through unchanged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sembase.errors import ConfigurationError
from semblend.contract import Decline, Outcome
from semblend.contract.namespace import UNKNOWN
from semblend.integration.dynamo.provider import (
    NamePart,
    PlacementEvidence,
    SemanticEvidenceProvider,
    Worker,
    WorkerEvidence,
)


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """``confidence``: the weight of an expected token relative to one the router knows to be cached.

    ``min_gain_tokens``: a worker is pinned only if it is ahead of the best exact one by this much.
    """

    confidence: float = 0.5
    min_gain_tokens: int = 256

    def __post_init__(self) -> None:
        if not 0.0 <= self.confidence < 1.0 or self.min_gain_tokens < 1:
            raise ConfigurationError(
                "confidence must be in [0, 1), so that exact tokens win; min_gain_tokens must be at least 1"
            )


@dataclass(frozen=True, slots=True)
class Placement:
    """``worker`` None leaves the choice to the router. Placement is not reuse; only the backend confirms that."""

    outcome: Outcome
    worker: Worker | None
    reason: str
    evidence: PlacementEvidence | None = None


def place(answer: PlacementEvidence | Decline, rule: PlacementRule) -> Placement:
    """From evidence to a worker: an exact token counts whole, an expected one in part."""
    if isinstance(answer, Decline):
        return Placement(answer.outcome, None, answer.reason.value)
    best = max(answer.workers, key=lambda entry: _worth(entry, rule))
    exact = max(entry.exact_tokens for entry in answer.workers)
    if best.semantic_tokens and _worth(best, rule) - exact >= rule.min_gain_tokens:
        return Placement(Outcome.SEMANTIC_PLACEMENT, best.worker, "", answer)
    outcome = Outcome.EXACT_PREFIX if exact else Outcome.SEMANTIC_DISCOVERY_ONLY
    return Placement(outcome, None, "expected reuse gains less than min_gain_tokens over the exact overlap", answer)


def _worth(entry: WorkerEvidence, rule: PlacementRule) -> float:
    return entry.exact_tokens + rule.confidence * entry.semantic_tokens


class KvRouter(Protocol):
    """What we use of ``dynamo.llm.KvRouter`` (1.6.1)."""

    async def get_overlap_scores(
        self, token_ids: list[int], *, lora_name: str | None = None, cache_namespace: str | None = None
    ) -> dict[str, Any]: ...

    async def generate(self, token_ids: list[int], model: str, **options: Any) -> AsyncIterator[Any]: ...


class SemanticRouter:
    def __init__(self, router: KvRouter, provider: SemanticEvidenceProvider, rule: PlacementRule | None = None) -> None:
        self._router = router
        self._provider = provider
        self._rule = rule or PlacementRule()

    async def placement(
        self,
        token_ids: list[int],
        *,
        cache_salt: NamePart = UNKNOWN,
        lora_name: str | None = None,
        cache_namespace: str | None = None,
    ) -> Placement:
        """Where the request should go, or that the router should decide. No ``cache_salt`` means an unknown tenant."""
        scores = await self._router.get_overlap_scores(token_ids, lora_name=lora_name, cache_namespace=cache_namespace)
        answer = self._provider.evidence(token_ids, exact_tokens(scores), cache_salt=cache_salt, lora=lora_name)
        return place(answer, self._rule)

    async def generate(
        self, token_ids: list[int], model: str, *, placement: Placement, **options: Any
    ) -> AsyncIterator[Any]:
        if placement.worker is not None:
            options |= {"worker_id": placement.worker[0], "dp_rank": placement.worker[1]}
        return await self._router.generate(token_ids, model, **options)


def exact_tokens(scores: Mapping[str, Any]) -> dict[Worker, int]:
    """Tokens each worker holds as an exact prefix on its device."""
    size = int(scores["block_size"])
    return {(int(row["worker_id"]), int(row["dp_rank"])): int(row["device_blocks"]) * size for row in scores["workers"]}
