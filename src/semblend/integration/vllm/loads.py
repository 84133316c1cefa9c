"""Accepted claims: each becomes a load command for the workers, and their report says what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semblend.contract import (
    Decline,
    DeclineReason,
    Event,
    FaultContained,
    LoadAdvertised,
    Materialized,
    ReusePlan,
    Run,
    TokenRange,
)
from semblend.integration.claims import verification_positions
from semblend.integration.core.metrics import MetricsRecorder
from semblend.integration.core.provenance import provenance
from semblend.integration.vllm.cached_donors import CachedDonors
from semblend.integration.vllm.commands import LoadCommand, LoadReport, Recompute, StepReport
from semblend.integration.vllm.options import ConnectorOptions
from semblend.integration.vllm.request_record import VllmRequest
from semblend.plan.reuse_cost import ReuseCost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm.v1.core.kv_cache_manager import KVCacheBlocks


class Loads:
    """The load commands of the next step, and the requests that ended before their load was reported.

    ``on_confirmed`` gets every living request whose load succeeded.
    """

    def __init__(
        self,
        options: ConnectorOptions,
        block_tokens: int,
        cached: CachedDonors,
        metrics: MetricsRecorder,
        emit: Callable[[Event], None],
        on_confirmed: Callable[[VllmRequest], None],
        cost: ReuseCost,
    ) -> None:
        self._options = options
        self._block_tokens = block_tokens
        self._cached = cached
        self._metrics = metrics
        self._emit = emit
        self._on_confirmed = on_confirmed
        self._cost = cost
        self._commands: list[LoadCommand] = []
        self._unreported: dict[str, tuple[VllmRequest, dict[str, Any]]] = {}  # answered, with their provenance

    def __len__(self) -> int:
        return len(self._commands)

    def take(self) -> list[LoadCommand]:
        """A step begins: what it loads. Whatever the last step did not report will not be reported."""
        self._unreported.clear()
        commands, self._commands = self._commands, []
        return commands

    # -- commands ------------------------------------------------------------------------------------------------------

    def add(self, record: VllmRequest, plan: ReusePlan, blocks: KVCacheBlocks) -> None:
        """The engine accepted the plan's claim and allocated ``blocks`` for it."""
        command = self._command(record, plan, blocks)
        self._commands.append(command)
        record.is_accepted, record.is_confirmed, record.backend_decline = True, False, None
        record.runs = command.runs
        record.recomputed_tokens = plan.max_recomputed_tokens if command.recompute is not None else 0
        record.computed_tokens = sum(len(gap) for gap in command.compute) + record.recomputed_tokens
        record.outputs_at_load = record.request.num_output_tokens
        record.prefill_stats = record.request.prefill_stats
        _set_cached_tokens(record, record.reused_tokens)
        claimed_tokens = plan.claim_end - plan.exact_prefix_tokens
        self._emit(LoadAdvertised(record.request_id, plan.donor_ids, claimed_tokens, plan.exact_prefix_tokens))

    def fail(self, record: VllmRequest, blocks: KVCacheBlocks, external_tokens: int, why: str) -> None:
        """Nothing can be loaded for this claim: the workers compute it."""
        start, end = record.exact_prefix_tokens, record.exact_prefix_tokens + external_tokens
        block_ids = self._claimed_blocks(blocks, end)
        claim_ids = record.tokens[start:end].astype(np.int64)
        self._commands = [command for command in self._commands if command.request_id != record.request_id]
        self._commands.append(LoadCommand(record.request_id, block_ids, start, end, (), (), claim_ids, broken=why))
        record.is_accepted, record.is_confirmed, record.runs = True, False, ()
        record.backend_decline = Decline(DeclineReason.INTERNAL_ERROR, why)
        record.prefill_stats = record.request.prefill_stats
        _set_cached_tokens(record, 0)

    def _command(self, record: VllmRequest, plan: ReusePlan, blocks: KVCacheBlocks) -> LoadCommand:
        runs, compute = plan.runs, plan.compute
        if self._options.recompute_all:
            runs, compute = (), tuple(sorted((*plan.compute, *map(_range_of, plan.runs)), key=lambda part: part.start))
        return LoadCommand(
            record.request_id,
            self._claimed_blocks(blocks, plan.claim_end),
            plan.exact_prefix_tokens,
            plan.claim_end,
            runs,
            compute,
            record.tokens[plan.exact_prefix_tokens : plan.claim_end].astype(np.int64),
            recompute=self._recompute(record, plan, blocks) if runs else None,
            verified=verification_positions(runs if self._options.verify_loads else ()),
            cached=record.cached if runs else (),
        )

    def _recompute(self, record: VllmRequest, plan: ReusePlan, blocks: KVCacheBlocks) -> Recompute | None:
        """What the worker needs to select tokens: with the question after the claim, if its blocks are allocated."""
        selection = self._options.selection(plan.recompute_fraction)
        if selection is None:
            return None
        block_ids = self._claimed_blocks(blocks, len(record.tokens))
        has_room = len(block_ids) * self._block_tokens >= len(record.tokens)
        question = record.tokens[plan.claim_end :] if has_room else record.tokens[:0]
        return Recompute(selection, block_ids, question.astype(np.int64))

    def _claimed_blocks(self, blocks: KVCacheBlocks, end: int) -> tuple[int, ...]:
        return tuple(blocks.get_block_ids()[0][: -(-end // self._block_tokens)])

    # -- the workers' report -------------------------------------------------------------------------------------------

    def on_report(self, report: StepReport, records: Mapping[str, VllmRequest]) -> None:
        """The loads of a step, of the living requests in ``records``: confirmed, computed instead, or failed."""
        for request_id, error in report.load_faults.items():
            self._failed(request_id, error, records.get(request_id))
        for request_id, loaded in report.loaded.items():
            if request_id in report.load_faults:
                continue  # it failed on another rank
            ended = self._unreported.get(request_id)
            record = ended[0] if ended is not None else records.get(request_id)
            if loaded.fault:
                self._computed(request_id, loaded, record)
                continue
            expected = self._expected(record, loaded)
            self._emit(
                Materialized(
                    request_id,
                    loaded.donor_ids,
                    loaded.reused_tokens,
                    loaded.computed_tokens,
                    loaded.runs,
                    loaded.load_ms,
                    loaded.compute_ms,
                    *expected,
                )
            )
            if record is not None and record.plan is not None:
                self._confirmed(loaded, record)
                if request_id in records:
                    self._on_confirmed(record)

    def _expected(self, record: VllmRequest | None, loaded: LoadReport) -> tuple[float | None, float | None]:
        """What the plan was expected to take and to save, in milliseconds; the costs learn what it took."""
        if record is None or record.plan is None or self._options.recompute_all:
            return None, None
        asked = self._options.asked_tokens(record.plan)
        return self._cost.served(record.plan, asked, loaded.load_ms, loaded.compute_ms)

    def _confirmed(self, loaded: LoadReport, record: VllmRequest) -> None:
        record.is_confirmed = True
        if record.runs and record.cached:
            self._metrics.add("cache_loaded_tokens", self._cached.covered_tokens(record.runs, record.cached))
        record.recomputed_tokens = sum(run.length for run in record.runs) - loaded.reused_tokens
        record.computed_tokens, record.selected_by = loaded.computed_tokens, loaded.selected_by

    def _computed(self, request_id: str, loaded: LoadReport, record: VllmRequest | None) -> None:
        """Nothing was loaded, but every claimed position holds what the model computes there."""
        if record is not None:
            record.is_confirmed, record.runs = True, ()
            record.computed_tokens, record.recomputed_tokens = loaded.computed_tokens, 0
            record.backend_decline = Decline(DeclineReason.INTERNAL_ERROR, loaded.fault)
            _set_cached_tokens(record, 0)
        self._emit(FaultContained(request_id, "load", loaded.fault))

    def _failed(self, request_id: str, error: str, record: VllmRequest | None) -> None:
        """The engine computes the claim in a later step."""
        if record is not None:
            record.backend_decline = Decline(DeclineReason.INTERNAL_ERROR, error)
            _set_cached_tokens(record, 0)
        self._emit(FaultContained(request_id, "load", error))

    # -- provenance ----------------------------------------------------------------------------------------------------

    def provenance(self, record: VllmRequest, *, answered: bool) -> dict[str, Any]:
        """What the client receives about a request that ended.

        The engine ends requests before it passes on the report of the same step. The provenance of such a request is
        not sent yet and is completed with the report.
        """
        reply = self._provenance(record)
        if record.is_accepted and answered and not record.is_confirmed:
            self._unreported[record.request_id] = (record, reply)
        return reply

    def complete_provenance(self) -> None:
        """The step's report was processed."""
        for record, reply in self._unreported.values():
            reply.update(self._provenance(record))
        self._unreported.clear()

    def _provenance(self, record: VllmRequest) -> dict[str, Any]:
        is_confirmed = record.is_accepted and record.is_confirmed
        return provenance(record, is_confirmed=is_confirmed)


def _range_of(run: Run) -> TokenRange:
    return TokenRange(run.target_start, run.target_end)


def _set_cached_tokens(record: VllmRequest, loaded_tokens: int) -> None:
    """Make the engine's usage figures count what was not computed; a gap we filled was computed."""
    if record.prefill_stats is not None:
        record.prefill_stats.set(
            num_prompt_tokens=record.request.num_prompt_tokens,
            num_local_cached_tokens=record.exact_prefix_tokens,
            num_external_cached_tokens=loaded_tokens,
        )
