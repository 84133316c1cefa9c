"""Beside Dynamo's own KV router: it says each worker's exact overlap, we add evidence, it routes and keeps the books.

``SemanticRouter.generate`` takes what ``KvRouter.generate`` takes. Where there is no evidence the call goes through as
it came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from semblend.contract.namespace import UNKNOWN
from semblend.integration.dynamo.placement import Placement, PlacementRule, place
from semblend.integration.dynamo.provider import NamePart, SemanticEvidenceProvider, Worker


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
        """Where the request should go, or that the router should decide. A salt nobody told is no tenant at all."""
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
