"""The half in the scheduler's process: what may be loaded, what is kept, what happened. It owns no tensor.

Requests come in as the engine looks them up; commands for the worker go out once per step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from semblend.contract import (
    Decline,
    Declined,
    DeclineReason,
    Discovery,
    Event,
    FaultContained,
    LoadAdvertised,
    Materialized,
    Namespace,
    ReusePlan,
)
from semblend.integration.core.request_table import RequestTable
from semblend.integration.hints import Hints
from semblend.integration.trtllm.commands import LoadCommand, SaveCommand, StepCommands
from semblend.integration.trtllm.donors import Donors
from semblend.integration.trtllm.interface import LlmRequest, SchedulerOutput
from semblend.integration.trtllm.link import Link, Loaded, Saved, SaveFailed
from semblend.integration.trtllm.namespace import request_namespace
from semblend.integration.trtllm.options import TrtllmOptions
from semblend.integration.trtllm.plan_kinds import LoadPlan, classify, refusal
from semblend.integration.trtllm.record import TrtllmRequest
from semblend.pipeline.planner import Planner


class Leader:
    """One per engine, called on its scheduler's thread. ``obstacle`` says why this deployment loads nothing."""

    def __init__(
        self,
        options: TrtllmOptions,
        planner: Planner,
        deployment: Namespace,
        link: Link,
        emit: Callable[[Event], None],
        obstacle: Decline | None,
        *,
        block_tokens: int,
    ) -> None:
        self._options = options
        self._planner = planner
        self._deployment = deployment
        self._link = link
        self._emit = emit
        self._obstacle = obstacle
        self._block_tokens = block_tokens
        self._records: RequestTable[int, TrtllmRequest] = RequestTable()
        self._awaiting: dict[int, str] = {}  # requests with a claim and without pages
        self._loads: list[LoadCommand] = []
        self.donors = Donors(planner, emit, options.min_donor_tokens, options.host_bytes)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def loads_pages(self) -> bool:
        return self._options.materialization != "off" and self._obstacle is None and not self._link.fault

    def known(self, request_id: int) -> TrtllmRequest | None:
        return self._records.get(request_id)

    # -- a request is looked up --------------------------------------------------------------------------------------

    def matched_tokens(self, request: LlmRequest, boundary: int) -> int:
        """How many tokens from ``boundary`` on are claimed. An id that is used again belongs to another request."""
        self._take_reports()
        tokens = np.asarray(request.get_tokens(0), dtype=np.uint32)
        namespace = request_namespace(self._deployment, request, require_salt=self._options.require_salt)
        self._recall(request.request_id)
        record = TrtllmRequest(str(request.request_id), tokens, namespace, Hints(), block_tokens=self._block_tokens)
        record.exact_prefix_tokens = boundary
        self._records.add(request.request_id, record)
        started = time.perf_counter()
        self._answer(record, request, boundary)
        self._emit(record.lookup_event(time.perf_counter() - started))
        return record.load.tokens

    def _answer(self, record: TrtllmRequest, request: LlmRequest, boundary: int) -> None:
        if (why := _unfit(request)) is not None:
            record.decline = Decline(DeclineReason.UNSUPPORTED_MODE, why)
            return
        answer = self._planner.plan(record.tokens, record.namespace, boundary)
        if isinstance(answer, Decline):
            record.decline = answer
            return
        record.plan = answer
        tokens = record.tokens
        load = classify(answer, lambda donor: self._planner.shared_prefix(donor, tokens), self._block_tokens)
        record.kind = load.kind
        record.decline = self._refused(load, answer)
        if record.decline is None:
            record.load = load
            record.is_accepted = True  # until its end the engine counts on the claim
            self._awaiting[request.request_id] = load.donor_id
            self.donors.used(load.donor_id)

    def _refused(self, load: LoadPlan, plan: ReusePlan) -> Decline | None:
        if self._options.materialization == "off":
            found = tuple(Discovery(donor_id, 1.0, "tokens") for donor_id in plan.donor_ids)
            return Decline(DeclineReason.DISCOVERY_ONLY, f"{load.kind}: {plan.reused_tokens} tokens", found)
        if self._obstacle is not None:
            return self._obstacle
        if self._link.fault:
            return Decline(DeclineReason.VALIDATION_FAILURE, self._link.fault)
        return refusal(load)

    def withdraw(self, request_id: int) -> None:
        """Undo a look-up that failed."""
        self._records.pop(request_id)
        self._recall(request_id)

    def _recall(self, request_id: int) -> None:
        """The request lost its pages: a command that was not sent yet would write into another request's pages."""
        self._awaiting.pop(request_id, None)
        self._loads = [command for command in self._loads if command.request_id != request_id]

    # -- one step ------------------------------------------------------------------------------------------------------

    def allocated(self, request: LlmRequest, block_ids: list[int]) -> int:
        """The request has its pages: the claim becomes a load command. Returns the number of pages to load."""
        record = self._records.get(request.request_id)
        if record is None:
            return 0
        record.allocated(block_ids)
        if not record.load.tokens or record.is_dispatched:
            return 0
        load, size = record.load, self._block_tokens
        first, last = load.boundary // size, (load.boundary + load.tokens) // size
        pages = self._real(
            request.request_id, "load", block_ids[first:last]
        )  # an engine may accept a part of the claim
        record.is_dispatched = True
        self._awaiting.pop(request.request_id, None)
        record.loaded_tokens = len(pages) * size
        if pages:
            self._loads.append(LoadCommand(request.request_id, load.donor_id, first, pages))
        else:
            record.decline = Decline(DeclineReason.CAPACITY, "the engine allocated no page for the claim")
        return len(pages)

    def _real(self, request_id: int, stage: str, pages: Sequence[int]) -> tuple[int, ...]:
        """The pages before the first block without one: it is reported as -1, and nothing after it can be served."""
        for n, page in enumerate(pages):
            if not 0 <= page < self._link.page_count:
                error = f"page {page} is not one of the {self._link.page_count} pages of the cache"
                self._emit(FaultContained(str(request_id), stage, error))
                return tuple(pages[:n])
        return tuple(pages)

    def commands(self, output: SchedulerOutput) -> StepCommands:
        self._take_reports()
        loads, self._loads = tuple(self._loads), []
        for command in loads:
            record = self._records.get(command.request_id)
            assert record is not None, "a claimed request is never forgotten"
            donors, boundary = (command.donor_id,), record.load.boundary
            self._emit(LoadAdvertised(str(command.request_id), donors, record.loaded_tokens, boundary))
        is_concerned = self._options.materialization != "off" and self._obstacle is None
        saves = tuple(self._saves(output)) if is_concerned else ()
        return StepCommands(loads, self.donors.take_dropped(set(self._awaiting.values())), saves)

    def _saves(self, output: SchedulerOutput) -> list[SaveCommand]:
        """Prompts whose prefill ends in this step: whole pages, all of them exact KV."""
        saves = []
        scheduled = [(data, True) for data in output.new_requests] + [(data, False) for data in output.cached_requests]
        for data, is_new in scheduled:
            record = self._records.get(data.request_id)
            if record is None:
                continue
            is_prefilled = record.reported(data, is_new=is_new)
            self._count(data.request_id, record)
            if record.is_offered and data.computed_position < len(record.tokens) - 1:  # the prefill had not ended
                self.donors.withdraw(record.donor_id or "", "incomplete")
                record.is_offered = False
            if is_prefilled and self.loads_pages and (command := self._save(data.request_id, record)) is not None:
                saves.append(command)
        return saves

    def _save(self, request_id: int, record: TrtllmRequest) -> SaveCommand | None:
        blocks = len(record.tokens) // self._block_tokens
        if record.is_offered or not 0 < blocks <= len(record.block_ids):
            return None
        record.is_offered = True
        pages = self._real(request_id, "save", record.block_ids[:blocks])
        if len(pages) < blocks:
            return None
        tokens = record.tokens[: blocks * self._block_tokens]
        candidate = self.donors.candidate(str(request_id), tokens, record.namespace, blocks)
        if candidate is None or not self.donors.begin_save(candidate, self._link.page_bytes):
            return None
        record.donor_id = candidate.donor_id
        return SaveCommand(candidate.donor_id, pages)

    def _take_reports(self) -> None:
        for report in self._link.take():
            match report:
                case Saved(donor_id):
                    self.donors.saved(donor_id)
                case SaveFailed(donor_id):
                    self.donors.save_failed(donor_id)
                case Loaded(request_id, load_ms):
                    if (record := self._records.get(request_id)) is not None:
                        record.load_ms = load_ms
                        self._count(request_id, record)

    def _count(self, request_id: int, record: TrtllmRequest) -> None:
        """Count reuse: what the worker loaded and the engine demonstrably did not compute."""
        if record.is_counted or record.load_ms is None or record.served_tokens is None:
            return
        record.is_counted = True
        if record.served_tokens > record.loaded_tokens:
            error = f"{record.served_tokens} tokens were served and {record.loaded_tokens} loaded"
            self._emit(FaultContained(str(request_id), "load", error))
        if (reused := min(record.served_tokens, record.loaded_tokens)) > 0:
            donors = (record.load.donor_id,)
            self._emit(Materialized(str(request_id), donors, reused, 0, 1, record.load_ms, 0.0))
        else:
            record.decline = Decline(DeclineReason.CAPACITY, "the engine computed the whole claim")

    # -- a request ends ------------------------------------------------------------------------------------------------

    def finished(self, request: LlmRequest) -> None:
        self._take_reports()
        self._recall(request.request_id)
        record = self._records.pop(request.request_id)
        if record is None:
            return
        record.ended(len(request.get_tokens(0)))
        self._count(request.request_id, record)
        if record.decline is not None:
            self._emit(Declined(str(request.request_id), record.decline.reason.value, record.decline.detail))
        if self._options.materialization == "off" and _unfit(request) is None:
            candidate = self.donors.candidate(str(request.request_id), record.tokens, record.namespace)
            if candidate is not None:
                self.donors.register(candidate)


def _unfit(request: Any) -> str | None:
    """Requests whose KV does not follow from their token ids alone."""
    if getattr(request, "multimodal_hashes", None) or getattr(request, "prompt_embedding_table", None) is not None:
        return "only token prompts are looked up"
    return None
