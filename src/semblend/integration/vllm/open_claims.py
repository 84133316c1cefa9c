"""From a look-up to a claim: how many tokens of a request the engine need not schedule in this pass.

A claim is open until the engine allocates blocks for the request; one that it does not accept ends with the pass.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from semblend.contract import Decline, DeclineReason, Event, ReusePlan
from semblend.integration.vllm.cached_donors import CachedDonors
from semblend.integration.vllm.held_donors import HeldDonors
from semblend.integration.vllm.look_up import Capabilities, LookUp
from semblend.integration.vllm.look_up_thread import MAX_INLINE_TOKENS, LookUpThread
from semblend.integration.vllm.options import ConnectorOptions
from semblend.integration.vllm.private_blocks import PrivateBlocks
from semblend.integration.vllm.request_record import VllmRequest
from semblend.integration.vllm.step_budget import StepBudget

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.v1.core.block_pool import BlockPool


class OpenClaims:
    """The claims of one scheduling pass. A claim makes the request's hashes private and pins its donors' blocks."""

    def __init__(
        self,
        options: ConnectorOptions,
        capabilities: Capabilities,
        look_up: LookUp,
        held: HeldDonors,
        cached: CachedDonors,
        private: PrivateBlocks,
        emit: Callable[[Event], None],
    ) -> None:
        self._options = options
        self._can = capabilities
        self._look_up = look_up
        self._thread = LookUpThread(look_up.answer)
        self._held = held
        self._cached = cached
        self._private = private
        self._emit = emit
        self._budget = StepBudget(capabilities.max_step_tokens)
        self._open: dict[str, VllmRequest] = {}

    def __len__(self) -> int:
        return len(self._open)

    def tokens(self, record: VllmRequest, boundary: int, pool: BlockPool | None) -> int | None:
        """How many tokens from ``boundary`` on are claimed; ``None`` asks the engine to call again.

        The engine may call it several times before it allocates.
        """
        request = record.request
        if self._look_up.needs_time(record):
            return None
        if self._private.holds(request.request_id):
            if boundary > self._private.boundary(request.request_id):
                return 0  # preempted after a blend: the rest of its blocks serves, the engine computes what is missing
            self._private.uncache(request, pool)
            self._withdraw(record)
            record.is_accepted = False
        is_ready = False
        while not is_ready:  # each round forgets a donor whose blocks have left the cache
            if record.asked_at != (boundary, self._held.version) and not self._ask(record, boundary):
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
        self._open[request.request_id] = record
        return record.plan.claim_end - boundary

    def fail(self, record: VllmRequest) -> None:
        """The look-up failed: undo what it did."""
        if record.request_id in self._open:
            self._withdraw(record)
        record.drop_look_up()
        record.plan, record.asked_at = None, None
        record.decline = Decline(DeclineReason.INTERNAL_ERROR)

    def close(self, record: VllmRequest, external_tokens: int) -> bool:
        """The engine allocated blocks and accepts ``external_tokens``. True if the request had a claim."""
        is_open = self._open.pop(record.request_id, None) is not None
        computed = record.request.num_tokens - record.exact_prefix_tokens - external_tokens
        self._budget.place(record.request, computed)
        if is_open and not external_tokens:
            self._private.restore(record.request)
        return is_open

    def end_pass(self) -> int:
        """Claims the engine did not accept are void. Returns the tokens that claims have added to the pass."""
        claimed_tokens = self._budget.end_pass()
        self._cached.unpin()
        for record in list(self._open.values()):
            record.may_pin &= not record.cached
            self._withdraw(record)
        return claimed_tokens

    def leave(self, request_id: str) -> None:
        """The request is over."""
        self._budget.leave(request_id)
        self._open.pop(request_id, None)

    def shut_down(self) -> None:
        self._thread.close()

    def _withdraw(self, record: VllmRequest) -> None:
        self._open.pop(record.request_id, None)
        self._private.restore(record.request)

    def _pin(self, record: VllmRequest, plan: ReusePlan) -> bool:
        """Find and pin what the cache holds of the plan. False: donors that it no longer holds were forgotten."""
        found = self._cached.locate(plan.runs, self._budget.running())
        whole = dict.fromkeys(plan.donor_ids, True)
        for run, blocks in zip(plan.runs, found, strict=True):
            whole[run.donor_id] &= self._cached.reaches_end(run, blocks)
        alone = [donor_id for donor_id in plan.donor_ids if self._cached.holds_alone(donor_id)]
        if lost := [donor_id for donor_id in alone if not whole[donor_id]]:
            self._held.left_cache(lost)
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
            record.drop_look_up()
            record.pending = self._thread.submit(record, boundary, self._held.version)
            return False
        if not pending.ready.is_set():
            return False
        record.pending = None
        answer = pending.result()
        if isinstance(answer, ReusePlan) and not self._held.can_find(answer):
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
        record.drop_look_up()
        record.asked_at = (boundary, self._held.version if version is None else version)
        record.answered(answer, boundary)
        self._emit(record.lookup_event(seconds))
