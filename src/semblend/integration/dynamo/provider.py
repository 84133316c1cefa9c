"""Semantic evidence for Dynamo's router: tokens and each worker's exact overlap in, expected tokens per worker out.

Evidence, not authority: the worker's own connector decides what is loaded. Called once per request by ``router.py``,
from one thread; a fault becomes ``Decline(internal_error)``, and Dynamo's router chooses alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np

from sembase.ordered_stream import ResetReason
from semblend.contract import Decline, DeclineReason, FaultContained
from semblend.contract.donor_event import DonorBatch, DonorEventError
from semblend.contract.namespace import UNKNOWN, Unknown
from semblend.donors.index import DonorIndex
from semblend.donors.packing import unpack
from semblend.donors.sink import DonorSink
from semblend.integration.border import Border
from semblend.pipeline.tokens import TokenIds, as_tokens
from semblend.plan.gates import ADAPTER_GATES, Gates

log = logging.getLogger("semblend.dynamo")
MAX_WORKERS: Final = 1 << 15
Worker = tuple[int, int]  # Dynamo's worker id and data-parallel rank
NamePart = str | None | Literal[Unknown.UNKNOWN]


@dataclass(frozen=True, slots=True)
class WorkerEvidence:
    """``semantic_tokens`` lie beyond the worker's own exact overlap. Expected, not confirmed."""

    worker: Worker
    exact_tokens: int
    semantic_tokens: int
    donor_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlacementEvidence:
    """One entry per worker of the request, in the router's order."""

    prompt_tokens: int
    workers: tuple[WorkerEvidence, ...]


class WorkerSink:
    """One worker's messages, by rank to the provider. Never raises: a ``malformed`` message is counted."""

    def __init__(self, provider: SemanticEvidenceProvider, worker_id: int) -> None:
        self.malformed = 0
        self._provider = provider
        self._worker_id = worker_id

    async def deliver(self, payload: bytes) -> None:
        try:
            batch = unpack(payload)
        except DonorEventError:
            self.malformed += 1
            return
        self._provider.apply(self._worker_id, batch)

    def reset(self, reason: ResetReason) -> None:
        self._provider.clear(self._worker_id)


class SemanticEvidenceProvider:
    """``key`` is the one the engines announce under. ``require_salt`` declines requests that name no tenant.

    A worker's donors count by the gates its connector announced; ``gates`` is for workers that announce none.
    """

    def __init__(
        self,
        key: bytes,
        *,
        index: DonorIndex | None = None,
        gates: Gates = ADAPTER_GATES,
        enabled: bool = True,
        require_salt: bool = False,
        report: Callable[[FaultContained], None] = lambda _: None,
    ) -> None:
        DonorIndex.warm_up()
        self.index = index or DonorIndex(key, gates=gates)
        self._sinks: dict[Worker, DonorSink] = {}
        self._free_slots: list[int] = []
        self._fallback = gates
        self._enabled = enabled
        self._require_salt = require_salt
        self._border = Border(report, log)

    # -- what workers announce -----------------------------------------------------------------------------------------

    def apply(self, worker_id: int, batch: DonorBatch) -> None:
        if (sink := self._sink((worker_id, batch.rank))) is not None:
            sink.apply(batch)

    def forget(self, worker_id: int) -> None:
        """Every rank of a worker is gone, with its donors and gates."""
        for worker in [worker for worker in self._sinks if worker[0] == worker_id]:
            slot = self._sinks.pop(worker).slot
            self.index.forget(slot)
            self._free_slots.append(slot)

    def clear(self, worker_id: int) -> None:
        """Messages of a worker were lost: drop the donors of every rank. Their gates stay."""
        for worker, sink in self._sinks.items():
            if worker[0] == worker_id:
                self.index.clear(sink.slot)

    def sink(self, worker_id: int) -> WorkerSink:
        """Where a feed delivers one worker's messages."""
        return WorkerSink(self, worker_id)

    def donors(self, worker: Worker) -> list[str]:
        sink = self._sinks.get(worker)
        return [] if sink is None else self.index.donors(sink.slot)

    def gates(self, worker: Worker) -> Gates:
        sink = self._sinks.get(worker)
        return self._fallback if sink is None else self.index.gates(sink.slot)

    def _sink(self, worker: Worker) -> DonorSink | None:
        """None beyond ``MAX_WORKERS``: ranks come from the wire."""
        if worker not in self._sinks and len(self._sinks) < MAX_WORKERS:
            slot = self._free_slots.pop() if self._free_slots else len(self._sinks)
            self._sinks[worker] = DonorSink(self.index, slot)
        return self._sinks.get(worker)

    # -- what the router requests --------------------------------------------------------------------------------------

    def evidence(
        self,
        token_ids: TokenIds,
        exact_tokens: Mapping[Worker, int],
        *,
        cache_salt: NamePart = None,
        lora: NamePart = None,
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
        self, token_ids: TokenIds, exact_tokens: Mapping[Worker, int], cache_salt: NamePart, lora: NamePart
    ) -> PlacementEvidence | Decline:
        if not self._enabled:
            return Decline(DeclineReason.DISABLED)
        if cache_salt is UNKNOWN or lora is UNKNOWN or (cache_salt is None and self._require_salt):
            return Decline(DeclineReason.NAMESPACE_UNKNOWN, "the request's tenant or adapter is unknown")
        tokens = as_tokens(token_ids)
        min_tokens = min((self.gates(worker).min_prompt_tokens for worker in exact_tokens), default=0)
        if len(tokens) < min_tokens:
            return Decline(DeclineReason.PROMPT_TOO_SHORT, f"{len(tokens)} tokens; min_prompt_tokens is {min_tokens}")
        if (longest := max(exact_tokens.values(), default=0)) >= len(tokens) - 1:
            return Decline(DeclineReason.EXACT_PREFIX_COVERS, f"{longest} of {len(tokens)} tokens are an exact prefix")
        slots = {worker: sink.slot for worker in exact_tokens if (sink := self._sinks.get(worker)) is not None}
        exact = np.zeros(max(slots.values(), default=-1) + 1, np.int32)
        for worker, slot in slots.items():
            exact[slot] = exact_tokens[worker]
        found = self.index.evidence(tokens, cache_salt, lora, exact)
        workers = []
        for worker, tokens_held in exact_tokens.items():
            slot = slots.get(worker, -1)
            semantic = int(found.tokens[slot]) if slot >= 0 else 0
            workers.append(WorkerEvidence(worker, tokens_held, semantic, found.donor_ids.get(slot, ())))
        if not any(entry.semantic_tokens for entry in workers):
            is_near = not found.slots_with_runs.isdisjoint(slots.values())
            return Decline(DeclineReason.BELOW_MIN_REUSE_RATIO if is_near else DeclineReason.NO_CANDIDATE)
        return PlacementEvidence(len(tokens), tuple(workers))
