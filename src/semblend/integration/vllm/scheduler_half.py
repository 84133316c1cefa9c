"""The half in the scheduler's process: what to reuse, what to keep, what happened. It owns no tensor.

Requests come in as the engine looks them up; commands for the workers go out once per step, and reports come back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.v1.request import RequestStatus

from semblend.contract import Declined, Event, FaultContained, Namespace
from semblend.integration.announce import SILENT, Announcer
from semblend.integration.core.metrics import MetricsRecorder
from semblend.integration.hints import KEY, read_hints
from semblend.integration.vllm.cached_donors import CachedDonors
from semblend.integration.vllm.commands import (
    CaptureCommand,
    LoadCommand,
    RepairCommand,
    StepCommands,
    StepReport,
)
from semblend.integration.vllm.donor_keeper import DonorKeeper
from semblend.integration.vllm.loads import Loads
from semblend.integration.vllm.look_up import Capabilities, LookUp
from semblend.integration.vllm.namespace import request_namespace
from semblend.integration.vllm.open_claims import OpenClaims
from semblend.integration.vllm.options import ConnectorOptions
from semblend.integration.vllm.private_blocks import PrivateBlocks
from semblend.integration.vllm.repair import Repairs
from semblend.integration.vllm.request_record import VllmRequest
from semblend.integration.vllm.step_budget import scheduled_work
from semblend.plan.fidelity import OPEN, FidelityGate
from semblend.plan.reuse_cost import ReuseCost

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

    from semblend.integration.texts import TextDecoder
    from semblend.integration.vllm.remote_donors import RemoteDonors
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
        self._releases: list[str] = []
        self._cut: list[CaptureCommand] = []  # this step's capture slices, and the releases sent with them
        self._issued: list[str] = []
        self._private = PrivateBlocks(capabilities.hash_tokens)
        self._cost = ReuseCost(capabilities.probe)
        self._look_up = LookUp(options, planner, decoder, capabilities, fidelity, self._cost)
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
        self._claims = OpenClaims(
            options, capabilities, self._look_up, self.donors.held, self._cached, self._private, self._emit
        )
        self._loads = Loads(
            options,
            capabilities.block_tokens,
            self._cached,
            self.metrics,
            self._emit,
            self._consider_exact_head,
            self._cost,
        )
        self.repairs = Repairs(
            options.repair if capabilities.sparse_forward else "off",
            capabilities.block_tokens,
            partial(self.metrics.add, "published_tokens"),
            self.donors.capture_repaired,
        )
        self._remote = self._share_donors(planner)

    def _share_donors(self, planner: Planner) -> RemoteDonors | None:
        """The fleet's packages are imported only where donors are shared."""
        options, shape = self._options.fleet, self._can.fleet_shape
        if shape is None or self._can.fault:
            return None
        from semblend.integration.core.fleet_access import FleetAccess  # noqa: PLC0415
        from semblend.integration.vllm.remote_donors import RemoteDonors  # noqa: PLC0415

        return RemoteDonors(
            FleetAccess(options),
            shape,
            self._deployment,
            planner,
            self.donors,
            options,
            self._can.block_tokens,
            self.metrics,
            self._emit,
            self._cost,
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

    # -- a request arrives, is looked up and accepted ------------------------------------------------------------------

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
        if self._remote is not None:
            self._remote.arrived(record)

    def matched_tokens(self, request: Request, boundary: int) -> int | None:
        """How many tokens from ``boundary`` on this connector claims; ``None`` asks the engine to call again."""
        record = self._records[request.request_id]
        if self._remote is not None and self._remote.waits(record):
            return None
        return self._claims.tokens(record, boundary, self._pool)

    def withdraw(self, request_id: str) -> None:
        """Undo a look-up that failed."""
        if (record := self._records.get(request_id)) is not None:
            self._claims.fail(record)

    def allocated(self, request: Request, blocks: KVCacheBlocks, external_tokens: int) -> None:
        """The engine allocated blocks: the claim becomes a load command, or is void."""
        record = self._records[request.request_id]
        record.is_allocated = True
        is_claimed = self._claims.close(record, external_tokens)
        self._look_up.served(record)
        if not external_tokens:
            if record.is_plain and not record.is_accepted and not self._can.fault:
                self.donors.consider(record, len(record.tokens))
            return
        self.donors.leave(request.request_id)
        plan = record.plan
        if not is_claimed or plan is None or external_tokens != plan.claim_end - plan.exact_prefix_tokens:
            self.fail_claim(
                request, blocks, external_tokens, "the engine accepted a different token count than claimed"
            )
            return
        self._loads.add(record, plan, blocks)
        self.donors.held.used(plan)

    def fail_claim(self, request: Request, blocks: KVCacheBlocks, external_tokens: int, why: str) -> None:
        """Nothing can be loaded for this claim: the workers compute it."""
        self._loads.fail(self._records[request.request_id], blocks, external_tokens, why)

    # -- one step's commands and report --------------------------------------------------------------------------------

    def take_loads(self) -> list[LoadCommand]:
        """A step begins: the last one's slices and releases were sent and can no longer be given up."""
        self._cut, self._issued = [], []
        return self._loads.take()

    def commands(self, loads: list[LoadCommand], output: SchedulerOutput) -> StepCommands:
        """What the workers do in this step. Claims the engine did not accept are void from here on."""
        claimed_tokens, scheduled_tokens = self._claims.end_pass(), output.total_num_scheduled_tokens
        if self._blocks is None:
            return StepCommands(loads)
        self.silence_private_blocks()
        prefills = self.donors.prefills
        is_idle = not scheduled_tokens and not self._records
        is_pressed = prefills.is_lending and any(map(_waits_for_blocks, self._records.values()))
        prefill = prefills.next_slice(idle=is_idle, pressed=is_pressed)
        repair = self._repair_slice(scheduled_tokens + claimed_tokens, idle=is_idle, is_taken=prefill is not None)
        for record, novel in prefills.take_left():
            self._look_up.remember(record, novel)
        self._cut = captures = self.donors.slices(self._block_ids)
        unheld = self.donors.take_unheld() + self.repairs.take_unheld()
        self._issued, self._releases = self._releases + unheld, []
        frees = self.donors.take_frees_copied()
        dropped = self.donors.take_dropped()
        timed = scheduled_work(output) if self._cost.is_known or self._remote is not None else None
        if self._remote is None:
            return StepCommands(loads, captures, dropped, self._issued, prefill, frees, repair, timed=timed)
        published, fetches = self._remote.publications(captures), self._remote.take_fetches()
        audits = self._remote.audits
        audit = audits.next_slice(idle=is_idle and prefill is None and repair is None)
        self._issued += audits.take_unheld()
        rests = not scheduled_tokens and prefill is None and repair is None and self._remote.is_awaited
        return StepCommands(
            *(loads, captures, dropped, self._issued, prefill, frees, repair),
            *(fetches, published, timed, audit, rests),
        )

    def _repair_slice(self, step_tokens: int, *, idle: bool, is_taken: bool) -> RepairCommand | None:
        """This step's slice of a repair; none while a request waits for blocks that repairs hold."""
        assert self._blocks is not None
        if not len(self.repairs):
            return None
        free = self._blocks.block_pool.get_num_free_blocks() * self._can.block_tokens
        waiting = filter(_waits_for_blocks, self._records.values())
        if any(record.request.num_tokens >= free for record in waiting):
            self.repairs.stop()
        if is_taken:
            return None
        return self.repairs.next_slice(self._can.max_step_tokens - step_tokens, idle=idle)

    def silence_private_blocks(self) -> None:
        """The engine caches blocks when it schedules a step, and some (asynchronous scheduling) when it ends."""
        if self._blocks is not None:
            self._private.silence(self._blocks.block_pool)

    def on_report(self, report: StepReport) -> None:
        """What the workers report of a step, but for the donors they stored."""
        if report.timed is not None:
            self._cost.took(*report.timed)
        if self._remote is not None:
            self._remote.on_report(report)
        for request_id in report.load_faults:
            if (record := self._records.get(request_id)) is not None:
                # A preempted request would find its unwritten blocks again under its private hashes.
                self._private.uncache(record.request, self._pool)
        self._loads.on_report(report, self._records)
        if self._blocks is not None and (report.repaired or report.repair_faults):
            self._repaired(report, self._blocks)
        self._loads.complete_provenance()

    def _repaired(self, report: StepReport, blocks: KVCacheManager) -> None:
        for number, error in report.repair_faults.items():
            if (request_id := self.repairs.failed(number)) is not None:
                self._emit(FaultContained(request_id, "repair", error))
        for number, tokens in report.repaired.items():
            self.metrics.record_repair(tokens, report.repair_ms / 1e3)
            self.repairs.computed(number, blocks)

    def _consider_exact_head(self, record: VllmRequest) -> None:
        """The tokens before the first inexact run have exact KV, which is worth keeping if it is new."""
        self.donors.consider(record, record.exact_tokens)

    def _block_ids(self, request_id: str) -> list[int]:
        assert self._blocks is not None
        return self._blocks.get_block_ids(request_id)[0]

    # -- a request ends ------------------------------------------------------------------------------------------------

    def finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Whether the blocks must wait for a copy, and the provenance for the client."""
        record = self._records.pop(request.request_id, None)
        if record is None:
            return False, None
        record.drop_look_up()
        self._leave(request.request_id)
        pool = self._pool
        answered = request.num_output_tokens > record.outputs_at_load
        total_blocks = pool.num_gpu_blocks if pool is not None else 0
        is_private = self._private.holds(request.request_id)
        boundary = self._private.boundary(request.request_id) if is_private else 0
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
            holds = self.donors.prefills.offer(record, novel, block_ids, total_blocks)
        elif novel:
            self._look_up.remember(record, novel)
        if self._remote is not None and answered and is_private and not holds and self._can.sparse_forward:
            holds = self._remote.audits.offer(record, block_ids, boundary, total_blocks)
        return self._ended(record, answered, holds=holds)

    def _ended(self, record: VllmRequest, answered: bool, *, holds: bool) -> tuple[bool, dict[str, Any]]:
        self._look_up.finish(record)
        if record.decline is not None and not record.is_accepted:
            self._emit(Declined(record.request_id, record.decline.reason.value, record.decline.detail))
        return holds, {KEY: self._loads.provenance(record, answered=answered)}

    def give_up_captures(self) -> list[str]:
        """Commands could not be sent: the finished requests whose blocks must be released without a copy."""
        self._cached.unpin()
        self.repairs.stop()
        if self._remote is not None:
            self._remote.lose_commands()
            self._remote.audits.stop()
            self._releases += self._remote.audits.take_unheld()
        held = self._issued + self._releases + self.repairs.take_unheld() + self.donors.give_up_captures(self._cut)
        self._cut, self._issued, self._releases = [], [], []
        return held

    def abandon(self, request: Request) -> None:
        """Clean up after a fault at the end of a request, whose blocks are freed now."""
        if (record := self._records.pop(request.request_id, None)) is not None:
            record.drop_look_up()
        self._leave(request.request_id)
        self._private.forget(request.request_id)
        self.donors.abandon(request.request_id)
        self.repairs.abandon(request.request_id)
        if self._remote is not None:
            self._remote.audits.abandon(request.request_id)

    def _leave(self, request_id: str) -> None:
        """The request is over: nothing waits for it any more."""
        self._claims.leave(request_id)
        if self._remote is not None:
            self._remote.left(request_id)

    def lacks_blocks(self) -> bool:
        """The engine lacks blocks: lent ones are returned. True when waiting will free some."""
        self.donors.prefills.stop()
        self.repairs.stop()
        if self._remote is not None:
            self._remote.audits.stop()
        return self.has_waiting_blocks

    @property
    def has_waiting_blocks(self) -> bool:
        """Whether finished requests still hold blocks."""
        is_auditing = self._remote is not None and self._remote.audits.has_waiting_blocks
        waiting = self.donors.has_waiting_blocks or self.repairs.has_waiting_blocks
        return waiting or is_auditing or bool(self._releases)

    def close(self) -> None:
        self._claims.shut_down()
        if self._remote is not None:
            self._remote.close()

    def reset(self) -> None:
        """Drop every donor. The workers drop theirs with the next step's commands."""
        self.repairs.stop()
        self._releases += self.repairs.take_unheld() + self.donors.forget_all()
        self._look_up.forget_all()
        if self._remote is not None:
            self._remote.forget_all()
            self._releases += self._remote.audits.take_unheld()


def _waits_for_blocks(record: VllmRequest) -> bool:
    """New, or preempted: the engine takes a preempted request's blocks and calls no hook while it cannot place it."""
    return not record.is_allocated or record.request.status == RequestStatus.PREEMPTED
