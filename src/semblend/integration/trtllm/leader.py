"""The half beside the engine's scheduler: what may be loaded, what is kept, what happened. It owns no tensor.

Requests come in as the engine asks about them; orders for the worker go out once per step.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import (
    Decline,
    Declined,
    DeclineReason,
    Discovery,
    Event,
    LoadAdvertised,
    LookupFinished,
    Materialized,
    Namespace,
    ReusePlan,
)
from semblend.integration.trtllm.donors import Candidate, Donors
from semblend.integration.trtllm.interface import LlmRequest, RequestData, SchedulerOutput
from semblend.integration.trtllm.link import Link, Loaded, Saved, SaveFailed
from semblend.integration.trtllm.namespace import request_namespace
from semblend.integration.trtllm.options import TrtllmOptions
from semblend.integration.trtllm.orders import LoadOrder, SaveOrder, StepOrders
from semblend.integration.trtllm.plan_kinds import LoadPlan, PlanKind, classify, not_loaded, refusal
from semblend.pipeline.planner import Planner

MAX_RECORDS: Final = 8192
_NOTHING: Final = not_loaded(PlanKind.DISCOVERY_ONLY)


@dataclass(slots=True)
class Record:
    """One request between its look-up and its end."""

    tokens: NDArray[np.uint32]
    namespace: Namespace
    load: LoadPlan = _NOTHING
    kind: PlanKind = PlanKind.DISCOVERY_ONLY  # of what was found, loaded or not
    plan: ReusePlan | None = None
    decline: Decline | None = None
    block_ids: tuple[int, ...] = ()
    is_dispatched: bool = False
    loaded_tokens: int = 0
    is_offered: bool = False  # as a donor


class Leader:
    """One per engine, called on its scheduler's thread. ``obstacle`` is why this deployment loads nothing, if so."""

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
        self._records: OrderedDict[int, Record] = OrderedDict()
        self._loads: list[LoadOrder] = []
        self.donors = Donors(planner, emit, options.min_donor_tokens, options.host_bytes)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def loads_pages(self) -> bool:
        return self._options.materialization != "off" and self._obstacle is None and not self._link.fault

    def known(self, request_id: int) -> Record | None:
        return self._records.get(request_id)

    # -- a request is asked about ------------------------------------------------------------------------------------

    def matched_tokens(self, request: LlmRequest, boundary: int) -> int:
        """How many tokens from ``boundary`` on are promised. An id may come back; it is another request then."""
        self._hear()
        tokens = np.asarray(request.get_tokens(0), dtype=np.uint32)
        namespace = request_namespace(self._deployment, request, require_salt=self._options.require_salt)
        record = self._records[request.request_id] = Record(tokens, namespace)
        self._make_room()
        started = time.perf_counter()
        self._answer(record, request, boundary)
        plan, decline = record.plan, record.decline
        self._emit(
            LookupFinished(
                str(request.request_id),
                namespace.digest(),
                len(tokens),
                boundary,
                plan.reused_tokens if plan is not None else 0,
                len(plan.runs) if plan is not None else 0,
                plan.donor_ids if plan is not None else (),
                None,
                None if decline is None else decline.reason.value,
                (time.perf_counter() - started) * 1e6,
            )
        )
        return record.load.tokens

    def _answer(self, record: Record, request: LlmRequest, boundary: int) -> None:
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
        """Something broke while a request was asked about: nothing of it stays behind."""
        self._records.pop(request_id, None)

    def _make_room(self) -> None:
        """A request whose end we never heard of does not stay for ever; one that was promised KV does."""
        while len(self._records) > MAX_RECORDS:
            oldest = next((key for key, record in self._records.items() if not record.load.tokens), None)
            if oldest is None:
                return
            del self._records[oldest]

    # -- one step ----------------------------------------------------------------------------------------------------

    def allocated(self, request: LlmRequest, block_ids: list[int]) -> int:
        """The request has its pages: the promise becomes an order. How many pages will be loaded."""
        record = self._records.get(request.request_id)
        if record is None or not record.load.tokens or record.is_dispatched:
            return 0
        load, size = record.load, self._block_tokens
        first, last = load.boundary // size, (load.boundary + load.tokens) // size
        pages = tuple(block_ids[first:last])  # an engine that allocates by chunk may take a part of the offer
        record.is_dispatched = True
        record.loaded_tokens = len(pages) * size
        if pages:
            self._loads.append(LoadOrder(request.request_id, load.donor_id, first, pages))
        return len(pages)

    def orders(self, output: SchedulerOutput) -> StepOrders:
        self._hear()
        loads, self._loads = tuple(self._loads), []
        for order in loads:
            record = self._records[order.request_id]
            donors, boundary = (order.donor_id,), record.load.boundary
            self._emit(LoadAdvertised(str(order.request_id), donors, record.loaded_tokens, boundary))
        saves = tuple(self._saves(output)) if self.loads_pages else ()
        promised = {r.load.donor_id for r in self._records.values() if r.load.tokens and not r.is_dispatched}
        return StepOrders(loads, self.donors.take_dropped(promised), saves)

    def _saves(self, output: SchedulerOutput) -> list[SaveOrder]:
        """Prompts whose prefill ends in this step: whole pages, all of them exact KV."""
        saves = []
        scheduled = [(data, True) for data in output.new_requests] + [(data, False) for data in output.cached_requests]
        for data, is_new in scheduled:
            if (candidate := self._prefilled(data, is_new)) is None:
                continue
            if self.donors.begin_save(candidate, self._link.page_bytes):
                pages = self._records[data.request_id].block_ids[: candidate.blocks]
                saves.append(SaveOrder(candidate.donor_id, pages))
        return saves

    def _prefilled(self, data: RequestData, is_new: bool) -> Candidate | None:
        record = self._records.get(data.request_id)
        if record is None or record.is_offered:
            return None
        record.block_ids += tuple(data.new_block_ids)
        computed = data.computed_position + data.num_scheduled_tokens
        if is_new:
            computed += record.loaded_tokens  # the engine leaves them out of its first report
        blocks = len(record.tokens) // self._block_tokens
        if computed < len(record.tokens) or not 0 < blocks <= len(record.block_ids):
            return None
        record.is_offered = True
        tokens = record.tokens[: blocks * self._block_tokens]
        return self.donors.candidate(str(data.request_id), tokens, record.namespace, blocks)

    def _hear(self) -> None:
        for news in self._link.take():
            match news:
                case Saved(donor_id):
                    self.donors.saved(donor_id)
                case SaveFailed(donor_id):
                    self.donors.save_failed(donor_id)
                case Loaded(request_id, load_ms):
                    if (record := self._records.get(request_id)) is not None:
                        donors = (record.load.donor_id,)
                        self._emit(Materialized(str(request_id), donors, record.loaded_tokens, 0, 1, load_ms, 0.0))

    # -- a request ends ----------------------------------------------------------------------------------------------

    def finished(self, request: LlmRequest) -> None:
        self._hear()
        record = self._records.pop(request.request_id, None)
        if record is None:
            return
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
