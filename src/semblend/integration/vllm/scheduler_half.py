"""The half in the scheduler's process: what to reuse, what to keep, what happened. It owns no tensor.

Requests come in as the engine looks them up; commands for the workers go out once per step, and reports come back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from semblend.contract import (
    Decline,
    Declined,
    DeclineReason,
    Event,
    FaultContained,
    LoadAdvertised,
    Materialized,
    Namespace,
    ReusePlan,
    Run,
    TokenRange,
)
from semblend.integration.announce import SILENT, Announcer
from semblend.integration.claims import verification_positions
from semblend.integration.core.metrics import MetricsRecorder
from semblend.integration.core.provenance import provenance
from semblend.integration.hints import KEY, read_hints
from semblend.integration.vllm.commands import CaptureCommand, LoadCommand, Recompute, StepCommands, StepReport
from semblend.integration.vllm.donor_keeper import DonorKeeper
from semblend.integration.vllm.look_up import Capabilities, LookUp
from semblend.integration.vllm.namespace import request_namespace
from semblend.integration.vllm.options import ConnectorOptions
from semblend.integration.vllm.private_blocks import PrivateBlocks
from semblend.integration.vllm.request_record import VllmRequest
from semblend.plan.fidelity import OPEN, FidelityGate

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.request import Request

    from semblend.integration.texts import TextDecoder
    from semblend.pipeline.planner import Planner


class SchedulerHalf:
    """One per engine. Every public method is called on the scheduler's thread."""

    def __init__(
        self,
        options: ConnectorOptions,
        planner: Planner,
        decoder: TextDecoder | None,
        deployment: Namespace,
        capabilities: Capabilities,
        emit: Callable[[Event], None],
        announcer: Announcer = SILENT,
        fidelity: FidelityGate = OPEN,
    ) -> None:
        self.metrics = MetricsRecorder()
        self._options = options
        self._deployment = deployment
        self._can = capabilities
        self._write_event = emit
        self._blocks: KVCacheManager | None = None
        self._records: dict[str, VllmRequest] = {}
        self._private = PrivateBlocks(capabilities.hash_tokens)
        self._claimed: dict[str, Request] = {}  # claims of this scheduling pass without a load command yet
        self._step_tokens = 0  # gaps and recomputed tokens claimed in this scheduling pass
        self._loads: list[LoadCommand] = []
        self._releases: list[str] = []
        self._cut: list[CaptureCommand] = []  # this step's capture slices, and the releases sent with them
        self._issued: list[str] = []
        self._look_up = LookUp(options, planner, decoder, capabilities, fidelity)
        self.donors = DonorKeeper(
            options,
            planner,
            decoder,
            self.metrics,
            self._emit,
            block_tokens=capabilities.block_tokens,
            bytes_per_token=capabilities.bytes_per_token,
            ranks=capabilities.ranks,
            announcer=announcer,
        )

    @property
    def _pool(self) -> BlockPool | None:
        return self._blocks.block_pool if self._blocks is not None else None

    def _emit(self, event: Event) -> None:
        self.metrics.record(event)
        self._write_event(event)

    def bind(self, blocks: KVCacheManager) -> None:
        self._blocks = blocks

    # -- a request arrives and is looked up ----------------------------------------------------------------------------

    def arrived(self, request: Request) -> None:
        """An id may be used again; what was known under it belonged to an earlier request."""
        namespace = request_namespace(
            self._deployment, request.cache_salt, request.lora_request, require_salt=self._options.require_salt
        )
        tokens = np.asarray(request.prompt_token_ids or (), dtype=np.uint32)
        hints = read_hints(request.kv_transfer_params)
        self.donors.leave(request.request_id)
        self._records[request.request_id] = record = VllmRequest(
            request.request_id, tokens, namespace, hints, request=request
        )
        self._look_up.stage(record)

    def matched_tokens(self, request: Request, boundary: int) -> int | None:
        """How many tokens from ``boundary`` on this connector claims; ``None`` asks the engine to call again.

        The engine may call it several times before it allocates.
        """
        record = self._records[request.request_id]
        if self._look_up.needs_time(record):
            return None
        if self._private.holds(request.request_id):
            if boundary > self._private.boundary(request.request_id):
                return 0  # preempted after a blend: the rest of its blocks serves, the engine computes what is missing
            self._private.uncache(request, self._pool)
            self._withdraw(request)
            record.is_accepted = False
        if record.asked_at != (boundary, self.donors.version):
            self._ask(record, boundary)
        if record.plan is None:
            return 0
        tokens = self._options.step_tokens(record.plan)
        if self._step_tokens and self._step_tokens + tokens > self._can.max_step_tokens:
            return None  # this step has enough to compute already
        self._step_tokens += tokens
        self._private.claim(request, boundary)
        self._claimed[request.request_id] = request
        return record.plan.claim_end - boundary

    def withdraw(self, request_id: str) -> None:
        """Undo a look-up that failed."""
        if (request := self._claimed.get(request_id)) is not None:
            self._withdraw(request)
        if (record := self._records.get(request_id)) is not None:
            record.plan, record.asked_at = None, None
            record.decline = Decline(DeclineReason.INTERNAL_ERROR)

    def _ask(self, record: VllmRequest, boundary: int) -> None:
        started = time.perf_counter()
        if self._private.can_claim(record.request, boundary):
            answer = self._look_up.answer(record, boundary)
        else:
            too_little = DeclineReason.EXACT_PREFIX_COVERS if boundary else DeclineReason.PROMPT_TOO_SHORT
            answer = Decline(too_little, "no full block after the exact prefix")
        seconds = time.perf_counter() - started
        record.asked_at = (boundary, self.donors.version)
        record.answered(answer, boundary)
        self._emit(record.lookup_event(seconds))

    def _withdraw(self, request: Request) -> None:
        self._claimed.pop(request.request_id, None)
        self._private.restore(request)

    # -- the engine accepts the claim ----------------------------------------------------------------------------------

    def allocated(self, request: Request, blocks: KVCacheBlocks, external_tokens: int) -> None:
        """The engine allocated blocks: the claim becomes a load command, or is void."""
        claimed = self._claimed.pop(request.request_id, None)
        record = self._records[request.request_id]
        record.is_allocated = True
        self._look_up.served(record)
        if not external_tokens:
            if claimed is not None:
                self._private.restore(request)
            if record.is_plain and not record.is_accepted and not self._can.fault:
                self.donors.consider(record, len(record.tokens))
            return
        self.donors.leave(request.request_id)
        plan = record.plan
        if claimed is None or plan is None or external_tokens != plan.claim_end - plan.exact_prefix_tokens:
            self.fail_claim(
                request, blocks, external_tokens, "the engine accepted a different token count than claimed"
            )
            return
        command = self._load_command(record, plan, blocks)
        self._loads.append(command)
        record.is_accepted, record.is_confirmed, record.backend_decline = True, False, None
        record.runs = command.runs
        record.recomputed_tokens = plan.max_recomputed_tokens if command.recompute is not None else 0
        record.computed_tokens = len(command.token_ids) + record.recomputed_tokens
        record.outputs_at_load = request.num_output_tokens
        self.donors.used(plan)
        _set_cached_tokens(request, plan.exact_prefix_tokens, record.reused_tokens)
        self._emit(LoadAdvertised(request.request_id, plan.donor_ids, external_tokens, plan.exact_prefix_tokens))

    def _load_command(self, record: VllmRequest, plan: ReusePlan, blocks: KVCacheBlocks) -> LoadCommand:
        runs, compute = plan.runs, plan.compute
        if self._options.recompute_all:
            runs, compute = (), tuple(sorted((*plan.compute, *map(_range_of, plan.runs)), key=lambda part: part.start))
        token_ids = [record.tokens[gap.start : gap.end] for gap in compute]
        verified = verification_positions(runs if self._options.verify_loads else ())
        return LoadCommand(
            record.request_id,
            self._claimed_blocks(blocks, plan.claim_end),
            plan.exact_prefix_tokens,
            plan.claim_end,
            runs,
            compute,
            np.concatenate(token_ids).astype(np.int64) if token_ids else np.empty(0, np.int64),
            recompute=self._recompute(record, plan, blocks) if runs else None,
            verified=verified,
            verified_ids=record.tokens[verified].astype(np.int64),
        )

    def _recompute(self, record: VllmRequest, plan: ReusePlan, blocks: KVCacheBlocks) -> Recompute | None:
        """What the worker needs to select tokens: with the question after the claim, if its blocks are allocated."""
        selection = self._options.selection(plan.recompute_fraction)
        if selection is None:
            return None
        prompt = record.tokens.astype(np.int64)
        block_ids = self._claimed_blocks(blocks, len(prompt))
        has_room = len(block_ids) * self._can.block_tokens >= len(prompt)
        question = prompt[plan.claim_end :] if has_room else np.empty(0, np.int64)
        return Recompute(selection, block_ids, prompt[plan.exact_prefix_tokens : plan.claim_end], question)

    def fail_claim(self, request: Request, blocks: KVCacheBlocks, external_tokens: int, why: str) -> None:
        """The claim cannot be kept: the workers report its blocks as invalid and the engine computes them."""
        record = self._records[request.request_id]
        start = record.exact_prefix_tokens
        block_ids = self._claimed_blocks(blocks, start + external_tokens)
        self._loads = [load for load in self._loads if load.request_id != request.request_id]
        self._loads.append(
            LoadCommand(
                request.request_id, block_ids, start, start + external_tokens, (), (), np.empty(0, np.int64), broken=why
            )
        )
        record.is_accepted, record.backend_decline = True, Decline(DeclineReason.INTERNAL_ERROR, why)
        _set_cached_tokens(request, start, 0)

    def _claimed_blocks(self, blocks: KVCacheBlocks, end: int) -> tuple[int, ...]:
        return tuple(blocks.get_block_ids()[0][: -(-end // self._can.block_tokens)])

    # -- one step's commands and report --------------------------------------------------------------------------------

    def take_loads(self) -> list[LoadCommand]:
        """A step begins: the last one's slices and releases were sent and can no longer be given up."""
        self._cut, self._issued = [], []
        loads, self._loads = self._loads, []
        return loads

    def commands(self, loads: list[LoadCommand], *, idle: bool) -> StepCommands:
        """What the workers do in this step. Claims the engine did not accept are void from here on."""
        self._step_tokens = 0
        for request in list(self._claimed.values()):
            self._withdraw(request)
        if self._blocks is None:
            return StepCommands(loads)
        self._private.silence(self._blocks.block_pool)
        is_pressed = self.donors.is_lending and any(not record.is_allocated for record in self._records.values())
        prefill = self.donors.prefill(idle=idle and not self._records, pressed=is_pressed)
        for record, novel in self.donors.take_passages_left():
            self._look_up.remember(record, novel)
        self._cut = captures = self.donors.slices(self._block_ids)
        self._issued, self._releases = self._releases + self.donors.take_unheld(), []
        return StepCommands(loads, captures, self.donors.take_dropped(), self._issued, prefill)

    def on_report(self, report: StepReport) -> None:
        """The loads in the workers' report of a step: confirmed or failed."""
        for request_id, error in report.load_faults.items():
            self._load_failed(request_id, error)
        for request_id, loaded in report.loaded.items():
            record = self._records.get(request_id)
            if request_id in report.load_faults:
                continue  # it failed on another rank
            self._emit(
                Materialized(
                    request_id,
                    loaded.donor_ids,
                    loaded.reused_tokens,
                    loaded.computed_tokens,
                    loaded.runs,
                    loaded.load_ms,
                    loaded.compute_ms,
                )
            )
            if record is not None and record.plan is not None:
                record.is_confirmed = True
                record.recomputed_tokens = sum(run.length for run in record.runs) - loaded.reused_tokens
                record.computed_tokens, record.selected_by = loaded.computed_tokens, loaded.selected_by
                self._consider_exact_head(record)

    def _consider_exact_head(self, record: VllmRequest) -> None:
        """The tokens before the first inexact run have exact KV, which is worth keeping if it is new."""
        self.donors.consider(record, record.exact_tokens)

    def _load_failed(self, request_id: str, error: str) -> None:
        if (record := self._records.get(request_id)) is not None:
            # A preempted request would find its unwritten blocks again under its private hashes.
            self._private.uncache(record.request, self._pool)
            record.backend_decline = Decline(DeclineReason.INTERNAL_ERROR, error)
            _set_cached_tokens(record.request, record.exact_prefix_tokens, 0)
        self._emit(FaultContained(request_id, "load", error))

    def _block_ids(self, request_id: str) -> list[int]:
        assert self._blocks is not None
        return self._blocks.get_block_ids(request_id)[0]

    # -- a request ends ------------------------------------------------------------------------------------------------

    def finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Whether the blocks must wait for a copy, and the provenance for the client."""
        record = self._records.pop(request.request_id, None)
        if record is None:
            return False, None
        self._claimed.pop(request.request_id, None)
        pool = self._pool
        self._private.release(request, pool)
        answered = request.num_output_tokens > record.outputs_at_load
        if record.is_blended and answered and not record.is_confirmed and record.plan is not None:
            self._consider_exact_head(record)  # a failed load would have kept it from answering
        total_blocks = pool.num_gpu_blocks if pool is not None else 0
        holds = self.donors.finished(record, block_ids, total_blocks)
        novel = self._look_up.novel(record) if answered else []
        if novel and not holds and self._can.sparse_forward:
            holds = self.donors.offer_passages(record, novel, block_ids, total_blocks)
        elif novel:
            self._look_up.remember(record, novel)
        self._look_up.finish(record)
        if record.decline is not None and not record.is_accepted:
            self._emit(Declined(request.request_id, record.decline.reason.value, record.decline.detail))
        is_confirmed = record.is_blended and (record.is_confirmed or answered)  # a failed load keeps it from answering
        return holds, {KEY: provenance(record, is_confirmed=is_confirmed, select=self._options.recompute_policy)}

    def give_up_captures(self) -> list[str]:
        """Commands could not be sent: the finished requests whose blocks must be released without a copy."""
        held = self._issued + self._releases + self.donors.give_up_captures(self._cut)
        self._cut, self._issued, self._releases = [], [], []
        return held

    def abandon(self, request: Request) -> None:
        """Clean up after a fault at the end of a request, whose blocks are freed now."""
        self._records.pop(request.request_id, None)
        self._claimed.pop(request.request_id, None)
        self._private.forget(request.request_id)
        self.donors.abandon(request.request_id)

    def lacks_blocks(self) -> bool:
        """The engine lacks blocks: lent ones are returned. True when waiting will free some."""
        self.donors.stop_lending()
        return self.donors.has_waiting_blocks or bool(self._releases)

    def reset(self) -> None:
        """Drop every donor. The workers drop theirs with the next step's commands."""
        self._releases += self.donors.forget_all()
        self._look_up.forget_all()


def _range_of(run: Run) -> TokenRange:
    return TokenRange(run.target_start, run.target_end)


def _set_cached_tokens(request: Request, local_tokens: int, loaded_tokens: int) -> None:
    """Make the engine's usage figures count what was not computed; a gap we filled was computed."""
    stats = request.prefill_stats
    if stats is not None:
        stats.set(
            num_prompt_tokens=request.num_prompt_tokens,
            num_local_cached_tokens=local_tokens,
            num_external_cached_tokens=loaded_tokens,
        )
