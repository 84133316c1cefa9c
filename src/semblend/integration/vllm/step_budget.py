"""What one scheduling pass computes: the engine's own tokens and those that claims add, against the engine's maximum.

The engine bounds what it schedules by ``max_num_batched_tokens`` and knows nothing of gaps and recomputed tokens. So
that the inter-token latency of running requests stays bounded, claims share this maximum: a pass computes at most the
maximum plus the tokens that one request adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.v1.request import RequestStatus

from semblend.contract import TokenRange
from semblend.integration.core.cost_probe import MIN_TIMED_TOKENS
from semblend.plan.reuse_cost import Work, pass_work

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request


class StepBudget:
    """One per scheduler; ``end_pass`` begins the next pass. Costs one look at every running request per pass."""

    def __init__(self, max_tokens: int) -> None:
        self._max = max_tokens
        self._placed: dict[str, Request] = {}  # have blocks, or had them before they were preempted
        self._scheduled: int | None = None  # by the engine in this pass, None until it is counted
        self._has_prefills = False
        self._claimed = 0
        self._is_closed = False

    def room_for_claim(self, added: int, rest: int) -> int | None:
        """How many tokens a claim may add to this pass; None: ask again in the next pass.

        It would add ``added``, and the engine computes at most ``rest`` of the same request. A request that has to
        wait for prefills of others keeps its place: the requests after it wait as well, so the prefills come to an end.
        """
        left = self._left()
        fits = added + rest <= left or (not self._claimed and added <= left)
        if self._is_closed or (not fits and (self._has_prefills or self._claimed)):
            self._is_closed = True
            return None
        return max(left, 0)

    def has_room(self, rest: int) -> bool:
        """Whether a request without a claim may be scheduled in this pass."""
        if self._is_closed or (self._claimed and rest > self._left()):
            self._is_closed = True
            return False
        return True

    def claim(self, added: int) -> None:
        self._claimed += added

    def place(self, request: Request, rest: int) -> None:
        """The engine has given the request blocks and computes ``rest`` tokens of it, as far as its budget allows."""
        scheduled = self._count()
        self._scheduled = min(self._max, scheduled + rest)
        self._has_prefills = True
        self._placed[request.request_id] = request

    def leave(self, request_id: str) -> None:
        self._placed.pop(request_id, None)

    def end_pass(self) -> int:
        """Returns the tokens that claims have added to this pass."""
        claimed = self._claimed
        self._scheduled, self._has_prefills, self._claimed, self._is_closed = None, False, 0, False
        return claimed

    def running(self) -> list[Request]:
        return [request for request in self._placed.values() if request.status == RequestStatus.RUNNING]

    def _left(self) -> int:
        return self._max - self._count() - self._claimed

    def _count(self) -> int:
        """Running requests come first in a pass: all they have left, as far as the engine's budget allows."""
        if self._scheduled is None:
            running = self.running()
            self._scheduled = min(self._max, sum(map(_due, running)))
            self._has_prefills = any(request.is_prefill_chunk for request in running)
        return self._scheduled


def _due(request: Request) -> int:
    return max(0, request.num_tokens_with_spec + request.num_output_placeholders - request.num_computed_tokens)


def scheduled_work(output: SchedulerOutput) -> Work | None:
    """What the engine's own forward pass computes in this step; None if that is too little to be timed."""
    if output.total_num_scheduled_tokens < MIN_TIMED_TOKENS:
        return None
    starts = {request.req_id: request.num_computed_tokens for request in output.scheduled_new_reqs}
    running = output.scheduled_cached_reqs
    starts.update(zip(running.req_ids, running.num_computed_tokens, strict=True))
    return pass_work(
        TokenRange(starts[request_id], starts[request_id] + tokens)
        for request_id, tokens in output.num_scheduled_tokens.items()
    )
