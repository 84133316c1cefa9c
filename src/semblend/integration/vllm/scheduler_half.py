"""The half in the scheduler's process: what to reuse, what to keep, what happened. It owns no tensor.

Requests come in as the engine looks them up; commands for the workers go out once per step, and reports come back.
"""

from __future__ import annotations

import time
from functools import partial
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
from semblend.integration.vllm.cached_donors import CachedDonors
from semblend.integration.vllm.commands import (
    CaptureCommand,
    LoadCommand,
    LoadReport,
    Recompute,
    RepairCommand,
    StepCommands,
    StepReport,
)
from semblend.integration.vllm.donor_keeper import DonorKeeper
from semblend.integration.vllm.look_up import Capabilities, LookUp
from semblend.integration.vllm.look_up_thread import MAX_INLINE_TOKENS, LookUpThread
from semblend.integration.vllm.namespace import request_namespace
from semblend.integration.vllm.options import ConnectorOptions
from semblend.integration.vllm.private_blocks import PrivateBlocks
from semblend.integration.vllm.repair import Repairs
from semblend.integration.vllm.request_record import VllmRequest
from semblend.integration.vllm.step_budget import StepBudget
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
        self._answered: dict[str, tuple[VllmRequest, dict[str, Any]]] = {}  # ended before their load was reported
        self._budget = StepBudget(capabilities.max_step_tokens)
        self._loads: list[LoadCommand] = []
        self._releases: list[str] = []
        self._cut: list[CaptureCommand] = []  # this step's capture slices, and the releases sent with them
        self._issued: list[str] = []
        self._look_up = LookUp(options, planner, decoder, capabilities, fidelity)
        self._thread = LookUpThread(self._look_up.answer)
        self._cached = CachedDonors(capabilities.block_tokens)
        self.donors = DonorKeeper(
            options,
            planner,
            decoder,
            self.metrics,
            self._emit,
            cached=self._cached,
            block_tokens=capabilities.block_tokens,
            bytes_per_token=capabilities.bytes_per_token,
            ranks=capabilities.ranks,
            announcer=announcer,
        )
        self.repairs = Repairs(
            options.repair if capabilities.sparse_forward else "off",
            capabilities.block_tokens,
            partial(self.metrics.add, "published_tokens"),
            self.donors.capture_repaired,
        )

    @property
    def _pool(self) -> BlockPool | None:
        return self._blocks.block_pool if self._blocks is not None else None

    def _emit(self, event: Event) -> None:
        self.metrics.record(event)
        self._write_event(event)

    def bind(self, blocks: KVCacheManager) -> None:
        self._blocks = blocks
        if self._can.hash_tokens == self._can.block_tokens:
            self._cached.bind(blocks)

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
        self.repairs.arrived(request)
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
        is_ready = False
        while not is_ready:  # each round forgets a donor whose blocks have left the cache
            if record.asked_at != (boundary, self.donors.version) and not self._ask(record, boundary):
                return None
            room = self._room(record)
            if room is None:
                return None
            if record.plan is not None and self._options.step_tokens(record.plan) > room:
                self._look_up.fit(record, room)
            is_ready = record.plan is None or self._pin(record, record.plan)
        if record.plan is None:
            return 0 if self._budget.has_room(request.num_tokens - boundary) else None
        self._budget.claim(self._options.step_tokens(record.plan))
        self._private.claim(request, boundary)
        self._claimed[request.request_id] = request
        return record.plan.claim_end - boundary

    def withdraw(self, request_id: str) -> None:
        """Undo a look-up that failed."""
        if (request := self._claimed.get(request_id)) is not None:
            self._withdraw(request)
        if (record := self._records.get(request_id)) is not None:
            _drop_look_up(record)
            record.plan, record.asked_at = None, None
            record.decline = Decline(DeclineReason.INTERNAL_ERROR)

    def _pin(self, record: VllmRequest, plan: ReusePlan) -> bool:
        """Find and pin what the cache holds of the plan. False: donors that it no longer holds were forgotten."""
        found = self._cached.locate(plan.runs, self._budget.running())
        whole = dict.fromkeys(plan.donor_ids, True)
        for run, blocks in zip(plan.runs, found, strict=True):
            whole[run.donor_id] &= self._cached.reaches_end(run, blocks)
        alone = [donor_id for donor_id in plan.donor_ids if self._cached.holds_alone(donor_id)]
        if lost := [donor_id for donor_id in alone if not whole[donor_id]]:
            self.donors.left_cache(lost)
            return False
        needed = -(-record.request.num_tokens // self._can.block_tokens)
        record.cached = ()
        if any(found) and record.may_pin and self._cached.pin(found, needed):
            record.cached = tuple(tuple(block.block_id for block in blocks) for blocks in found)
        elif alone:
            record.answered(Decline(DeclineReason.CAPACITY, "no blocks to spare for a copy"), plan.exact_prefix_tokens)
            record.asked_at = None
        return True

    def _room(self, record: VllmRequest) -> int | None:
        """How many tokens the request's claim may add to this pass; None: it has to wait for the next one."""
        if record.plan is None:
            return 0
        rest = record.request.num_tokens - record.plan.claim_end
        return self._budget.room_for_claim(self._options.step_tokens(record.plan), rest)

    def _ask(self, record: VllmRequest, boundary: int) -> bool:
        """False when the answer is not ready yet."""
        if not (self._can.fault or self._private.can_claim(record.request, boundary)):
            too_little = DeclineReason.EXACT_PREFIX_COVERS if boundary else DeclineReason.PROMPT_TOO_SHORT
            self._take(record, boundary, Decline(too_little, "no full block after the exact prefix"))
        elif self._can.fault or len(record.tokens) <= MAX_INLINE_TOKENS:
            started = time.perf_counter()
            answer = self._look_up.answer(record, boundary)
            self._take(record, boundary, answer, time.perf_counter() - started)
        else:
            return self._ask_thread(record, boundary)
        return True

    def _ask_thread(self, record: VllmRequest, boundary: int) -> bool:
        pending = record.pending
        if pending is None or pending.boundary != boundary:
            _drop_look_up(record)
            record.pending = self._thread.submit(record, boundary, self.donors.version)
            return False
        if not pending.ready.is_set():
            return False
        record.pending = None
        answer = pending.result()
        if isinstance(answer, ReusePlan) and not self.donors.can_find(answer):
            return self._ask_thread(record, boundary)  # a donor was evicted meanwhile
        self._take(record, boundary, answer, pending.seconds, pending.version)
        return True

    def _take(
        self,
        record: VllmRequest,
        boundary: int,
        answer: ReusePlan | Decline,
        seconds: float = 0.0,
        version: int | None = None,
    ) -> None:
        """Keep an answer. One for an earlier ``version`` of the donors serves this call; the next call asks again."""
        _drop_look_up(record)
        record.asked_at = (boundary, self.donors.version if version is None else version)
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
        self._budget.place(request, request.num_tokens - record.exact_prefix_tokens - external_tokens)
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
        record.computed_tokens = sum(len(gap) for gap in command.compute) + record.recomputed_tokens
        record.outputs_at_load = request.num_output_tokens
        record.prefill_stats = request.prefill_stats
        self.donors.used(plan)
        _set_cached_tokens(record, record.reused_tokens)
        self._emit(LoadAdvertised(request.request_id, plan.donor_ids, external_tokens, plan.exact_prefix_tokens))

    def _load_command(self, record: VllmRequest, plan: ReusePlan, blocks: KVCacheBlocks) -> LoadCommand:
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
        has_room = len(block_ids) * self._can.block_tokens >= len(record.tokens)
        question = record.tokens[plan.claim_end :] if has_room else record.tokens[:0]
        return Recompute(selection, block_ids, question.astype(np.int64))

    def fail_claim(self, request: Request, blocks: KVCacheBlocks, external_tokens: int, why: str) -> None:
        """Nothing can be loaded for this claim: the workers compute it."""
        record = self._records[request.request_id]
        start, end = record.exact_prefix_tokens, record.exact_prefix_tokens + external_tokens
        block_ids = self._claimed_blocks(blocks, end)
        claim_ids = record.tokens[start:end].astype(np.int64)
        self._loads = [load for load in self._loads if load.request_id != request.request_id]
        self._loads.append(LoadCommand(request.request_id, block_ids, start, end, (), (), claim_ids, broken=why))
        record.is_accepted, record.is_confirmed, record.runs = True, False, ()
        record.backend_decline = Decline(DeclineReason.INTERNAL_ERROR, why)
        record.prefill_stats = request.prefill_stats
        _set_cached_tokens(record, 0)

    def _claimed_blocks(self, blocks: KVCacheBlocks, end: int) -> tuple[int, ...]:
        return tuple(blocks.get_block_ids()[0][: -(-end // self._can.block_tokens)])

    # -- one step's commands and report --------------------------------------------------------------------------------

    def take_loads(self) -> list[LoadCommand]:
        """A step begins: the last one's slices and releases were sent and can no longer be given up."""
        self._cut, self._issued = [], []
        self._answered.clear()
        loads, self._loads = self._loads, []
        return loads

    def commands(self, loads: list[LoadCommand], scheduled_tokens: int) -> StepCommands:
        """What the workers do in this step. Claims the engine did not accept are void from here on."""
        claimed_tokens = self._budget.end_pass()
        self._cached.unpin()
        for request in list(self._claimed.values()):
            record = self._records[request.request_id]
            record.may_pin &= not record.cached
            self._withdraw(request)
        if self._blocks is None:
            return StepCommands(loads)
        self.silence_private_blocks()
        is_idle = not scheduled_tokens and not self._records
        is_pressed = self.donors.is_lending and any(not record.is_allocated for record in self._records.values())
        prefill = self.donors.prefill(idle=is_idle, pressed=is_pressed)
        repair = self._repair_slice(scheduled_tokens + claimed_tokens, idle=is_idle, is_taken=prefill is not None)
        for record, novel in self.donors.take_passages_left():
            self._look_up.remember(record, novel)
        self._cut = captures = self.donors.slices(self._block_ids)
        unheld = self.donors.take_unheld() + self.repairs.take_unheld()
        self._issued, self._releases = self._releases + unheld, []
        frees = self.donors.take_frees_copied()
        return StepCommands(loads, captures, self.donors.take_dropped(), self._issued, prefill, frees, repair)

    def _repair_slice(self, step_tokens: int, *, idle: bool, is_taken: bool) -> RepairCommand | None:
        """This step's slice of a repair; none while a request waits for blocks that repairs hold."""
        assert self._blocks is not None
        if not len(self.repairs):
            return None
        free = self._blocks.block_pool.get_num_free_blocks() * self._can.block_tokens
        if any(not record.is_allocated and len(record.tokens) >= free for record in self._records.values()):
            self.repairs.stop()
        if is_taken:
            return None
        return self.repairs.next_slice(self._can.max_step_tokens - step_tokens, idle=idle)

    def silence_private_blocks(self) -> None:
        """The engine caches blocks when it schedules a step, and some (asynchronous scheduling) when it ends."""
        if self._blocks is not None:
            self._private.silence(self._blocks.block_pool)

    def on_report(self, report: StepReport) -> None:
        """The loads in the workers' report of a step: confirmed, computed instead, or failed.

        The engine ends requests before it passes on the report of the same step. The provenance of such a request is
        not sent yet and is completed here.
        """
        for request_id, error in report.load_faults.items():
            self._load_failed(request_id, error)
        for request_id, loaded in report.loaded.items():
            if request_id in report.load_faults:
                continue  # it failed on another rank
            if loaded.fault:
                self._load_computed(request_id, loaded)
                continue
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
            record = self._loading(request_id)
            if record is not None and record.plan is not None:
                record.is_confirmed = True
                if record.runs and record.cached:
                    self.metrics.add("cache_loaded_tokens", self._cached.covered_tokens(record.runs, record.cached))
                record.recomputed_tokens = sum(run.length for run in record.runs) - loaded.reused_tokens
                record.computed_tokens, record.selected_by = loaded.computed_tokens, loaded.selected_by
                if request_id in self._records:
                    self._consider_exact_head(record)
        if self._blocks is not None and (report.repaired or report.repair_faults):
            self._repaired(report, self._blocks)
        for record, reply in self._answered.values():
            reply.update(self._provenance(record))
        self._answered.clear()

    def _repaired(self, report: StepReport, blocks: KVCacheManager) -> None:
        for number, error in report.repair_faults.items():
            if (request_id := self.repairs.failed(number)) is not None:
                self._emit(FaultContained(request_id, "repair", error))
        for number, tokens in report.repaired.items():
            self.metrics.record_repair(tokens, report.repair_ms / 1e3)
            self.repairs.computed(number, blocks)

    def _loading(self, request_id: str) -> VllmRequest | None:
        """The record of a request whose load is reported; it may have answered and ended in the same step."""
        ended = self._answered.get(request_id)
        return ended[0] if ended is not None else self._records.get(request_id)

    def _provenance(self, record: VllmRequest) -> dict[str, Any]:
        is_confirmed = record.is_accepted and record.is_confirmed
        return provenance(record, is_confirmed=is_confirmed, select=self._options.recompute_policy)

    def _consider_exact_head(self, record: VllmRequest) -> None:
        """The tokens before the first inexact run have exact KV, which is worth keeping if it is new."""
        self.donors.consider(record, record.exact_tokens)

    def _load_computed(self, request_id: str, loaded: LoadReport) -> None:
        """Nothing was loaded, but every claimed position holds what the model computes there."""
        if (record := self._loading(request_id)) is not None:
            record.is_confirmed, record.runs = True, ()
            record.computed_tokens, record.recomputed_tokens = loaded.computed_tokens, 0
            record.backend_decline = Decline(DeclineReason.INTERNAL_ERROR, loaded.fault)
            _set_cached_tokens(record, 0)
        self._emit(FaultContained(request_id, "load", loaded.fault))

    def _load_failed(self, request_id: str, error: str) -> None:
        """The engine computes the claim in a later step."""
        if (record := self._records.get(request_id)) is not None:
            # A preempted request would find its unwritten blocks again under its private hashes.
            self._private.uncache(record.request, self._pool)
            record.backend_decline = Decline(DeclineReason.INTERNAL_ERROR, error)
            _set_cached_tokens(record, 0)
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
        _drop_look_up(record)
        self._budget.leave(request.request_id)
        self._claimed.pop(request.request_id, None)
        pool = self._pool
        answered = request.num_output_tokens > record.outputs_at_load
        total_blocks = pool.num_gpu_blocks if pool is not None else 0
        boundary = self._private.boundary(request.request_id) if self._private.holds(request.request_id) else 0
        self._private.release(request, pool)
        self.repairs.answered(request)
        if (
            answered
            and record.is_blended
            and self.repairs.accepts(record, block_ids, total_blocks, self.donors.held_blocks)
        ):
            assert self._blocks is not None, "a blended request has blocks"
            self.donors.leave(request.request_id)  # it becomes a donor as a whole
            self.donors.finished(record, block_ids, total_blocks)
            self.repairs.add(record, block_ids, boundary, self._blocks)
            return self._ended(record, answered, holds=True)
        if record.is_blended and answered and not record.is_confirmed and record.plan is not None:
            self._consider_exact_head(record)  # it answered: every position before the inexact runs holds exact KV
        holds = self.donors.finished(record, block_ids, total_blocks)
        novel = self._look_up.novel(record) if answered else []
        if novel and not holds and self._can.sparse_forward:
            holds = self.donors.offer_passages(record, novel, block_ids, total_blocks)
        elif novel:
            self._look_up.remember(record, novel)
        return self._ended(record, answered, holds=holds)

    def _ended(self, record: VllmRequest, answered: bool, *, holds: bool) -> tuple[bool, dict[str, Any]]:
        self._look_up.finish(record)
        if record.decline is not None and not record.is_accepted:
            self._emit(Declined(record.request_id, record.decline.reason.value, record.decline.detail))
        reply = self._provenance(record)
        if record.is_accepted and answered and not record.is_confirmed:
            self._answered[record.request_id] = (record, reply)
        return holds, {KEY: reply}

    def give_up_captures(self) -> list[str]:
        """Commands could not be sent: the finished requests whose blocks must be released without a copy."""
        self._cached.unpin()
        self.repairs.stop()
        held = self._issued + self._releases + self.repairs.take_unheld() + self.donors.give_up_captures(self._cut)
        self._cut, self._issued, self._releases = [], [], []
        return held

    def abandon(self, request: Request) -> None:
        """Clean up after a fault at the end of a request, whose blocks are freed now."""
        if (record := self._records.pop(request.request_id, None)) is not None:
            _drop_look_up(record)
        self._budget.leave(request.request_id)
        self._claimed.pop(request.request_id, None)
        self._private.forget(request.request_id)
        self.donors.abandon(request.request_id)
        self.repairs.abandon(request.request_id)

    def lacks_blocks(self) -> bool:
        """The engine lacks blocks: lent ones are returned. True when waiting will free some."""
        self.donors.stop_lending()
        self.repairs.stop()
        return self.has_waiting_blocks

    @property
    def has_waiting_blocks(self) -> bool:
        """Whether finished requests still hold blocks."""
        return self.donors.has_waiting_blocks or self.repairs.has_waiting_blocks or bool(self._releases)

    def close(self) -> None:
        self._thread.close()

    def reset(self) -> None:
        """Drop every donor. The workers drop theirs with the next step's commands."""
        self.repairs.stop()
        self._releases += self.repairs.take_unheld() + self.donors.forget_all()
        self._look_up.forget_all()


def _drop_look_up(record: VllmRequest) -> None:
    """The request no longer waits for the look-up on its way."""
    if record.pending is not None:
        record.pending.is_dropped = True
        record.pending = None


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
