"""Semantic evidence for Dynamo's router: tokens and each worker's exact overlap in, expectations per worker out.

Evidence, not authority: the worker's own connector decides what is loaded. Called once per request by ``router.py``,
from one thread; whatever breaks becomes ``Decline(internal_error)`` and the router's own choice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Literal

from sembase.errors import ConfigurationError
from semblend.contract import Decline, DeclineReason, FaultContained
from semblend.contract.donor_event import (
    DonorAnnounced,
    DonorBatch,
    DonorRelocated,
    DonorsPurged,
    DonorWithdrawn,
    GenerationReset,
    anchor_salts,
    namespace_digest,
    tenant_of_salt,
)
from semblend.contract.namespace import UNKNOWN, Unknown
from semblend.fingerprint.anchors import select_anchors
from semblend.fingerprint.keyed import keyed_anchors
from semblend.integration.border import Border
from semblend.integration.dynamo.evidence_index import EvidenceIndex, Worker
from semblend.pipeline.tokens import TokenIds, as_tokens

log = logging.getLogger("semblend.dynamo")
NAMESPACES_REMEMBERED: Final = 4096
Told = str | None | Literal[Unknown.UNKNOWN]


@dataclass(frozen=True, slots=True)
class WorkerEvidence:
    """``semantic_tokens`` lie beyond the worker's own exact overlap. Expected, not confirmed."""

    worker: Worker
    exact_tokens: int
    semantic_tokens: int
    donor_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlacementEvidence:
    """One entry per worker the router asked about, in its order."""

    prompt_tokens: int
    workers: tuple[WorkerEvidence, ...]


@dataclass(frozen=True, slots=True)
class EvidenceGates:
    """Limits as the workers' own gates have them, as far as they can be foreseen from anchors."""

    min_run_tokens: int = 64
    min_reuse_ratio: float = 0.10
    min_prompt_tokens: int = 64

    def __post_init__(self) -> None:
        if self.min_run_tokens < 1 or self.min_prompt_tokens < 1 or not 0.0 <= self.min_reuse_ratio <= 1.0:
            raise ConfigurationError("least lengths are at least 1 token, min_reuse_ratio lies between 0 and 1")


class SemanticEvidenceProvider:
    """``key`` is the one the engines announce under. ``require_salt`` declines requests that name no tenant."""

    def __init__(
        self,
        key: bytes,
        *,
        index: EvidenceIndex | None = None,
        gates: EvidenceGates | None = None,
        enabled: bool = True,
        require_salt: bool = False,
        report: Callable[[FaultContained], None] = lambda _: None,
    ) -> None:
        self.index = index or EvidenceIndex()
        self.gates = gates or EvidenceGates()
        self._enabled = enabled
        self._require_salt = require_salt
        self._border = Border(report, log)
        self._digest = lru_cache(NAMESPACES_REMEMBERED)(partial(namespace_digest, key))
        self._salts = lru_cache(NAMESPACES_REMEMBERED)(partial(anchor_salts, key))

    # -- what workers announce ---------------------------------------------------------------------------------------

    def apply(self, worker_id: int, batch: DonorBatch) -> None:
        worker = (worker_id, batch.rank)
        for event in batch.events:
            match event:
                case DonorAnnounced():
                    self.index.add(worker, event)
                case DonorWithdrawn(donor_id=donor_id):
                    self.index.remove(worker, donor_id)
                case DonorsPurged(namespace=namespace):
                    self.index.clear(worker, namespace)
                case GenerationReset():
                    self.index.clear(worker)
                case DonorRelocated():
                    pass  # every tier can be loaded from

    def forget(self, worker_id: int) -> None:
        self.index.forget(worker_id)

    # -- what the router asks ----------------------------------------------------------------------------------------

    def evidence(
        self,
        token_ids: TokenIds,
        exact_tokens: Mapping[Worker, int],
        *,
        cache_salt: Told = None,
        lora: Told = None,
        request_id: str = "",
    ) -> PlacementEvidence | Decline:
        """``exact_tokens`` names every worker that may serve, with the prefix it holds."""
        return self._border.call(
            "evidence",
            request_id,
            partial(self._evidence, token_ids, exact_tokens, cache_salt, lora),
            Decline(DeclineReason.INTERNAL_ERROR),
        )

    def _evidence(
        self, token_ids: TokenIds, exact_tokens: Mapping[Worker, int], cache_salt: Told, lora: Told
    ) -> PlacementEvidence | Decline:
        if not self._enabled:
            return Decline(DeclineReason.DISABLED)
        if cache_salt is UNKNOWN or lora is UNKNOWN or (cache_salt is None and self._require_salt):
            return Decline(DeclineReason.NAMESPACE_UNKNOWN, "the request's tenant or adapter is not known")
        tokens = as_tokens(token_ids)
        if len(tokens) < self.gates.min_prompt_tokens:
            return Decline(DeclineReason.PROMPT_TOO_SHORT, f"{len(tokens)} tokens < {self.gates.min_prompt_tokens}")
        if max(exact_tokens.values(), default=0) >= len(tokens) - 1:
            return Decline(DeclineReason.EXACT_PREFIX_COVERS, f"of {len(tokens)} tokens")
        namespace = self._digest(tenant_of_salt(cache_salt), lora)
        positions, hashes = select_anchors(tokens)
        covers = self.index.cover(keyed_anchors(hashes, self._salts(namespace)), positions, self.gates.min_run_tokens)
        workers = []
        for worker, exact in exact_tokens.items():
            cover = covers.get(worker)
            semantic = cover.beyond(exact) if cover is not None else 0
            if semantic < self.gates.min_reuse_ratio * (len(tokens) - exact):
                semantic = 0
            donors = cover.donor_ids if cover is not None and semantic else ()
            workers.append(WorkerEvidence(worker, exact, semantic, donors))
        if not any(entry.semantic_tokens for entry in workers):
            is_near = any(worker in covers for worker in exact_tokens)
            return Decline(DeclineReason.BELOW_MIN_REUSE_RATIO if is_near else DeclineReason.NO_CANDIDATE)
        return PlacementEvidence(len(tokens), tuple(workers))
