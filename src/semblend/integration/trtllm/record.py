"""One request between its look-up and its end: its pages, its progress, and how much of the claim was served.

The engine's reports go in step by step; the leader reads the results. An engine may serve less than was claimed, and
its first report does not show how much. The served part is what neither the exact prefix nor the first step had
computed by the time of the next report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from semblend.integration.core.request_record import RequestRecord
from semblend.integration.trtllm.interface import RequestData
from semblend.integration.trtllm.plan_kinds import LoadPlan, PlanKind, not_loaded

_NOTHING: Final = not_loaded(PlanKind.DISCOVERY_ONLY)


@dataclass(slots=True)
class TrtllmRequest(RequestRecord):
    """``served_tokens`` and ``load_ms`` are None until the engine and the worker report them."""

    block_tokens: int = field(kw_only=True)
    load: LoadPlan = _NOTHING
    kind: PlanKind = PlanKind.DISCOVERY_ONLY  # of the plan that was found, loaded or not
    block_ids: list[int] = field(default_factory=list)
    is_dispatched: bool = False
    loaded_tokens: int = 0
    load_ms: float | None = None
    served_tokens: int | None = None
    is_counted: bool = False  # as materialized or declined
    is_offered: bool = False  # as a donor
    _reports: int = 0
    _first_step_tokens: int = 0
    _is_replayed: bool = False

    def allocated(self, block_ids: Sequence[int]) -> None:
        """Replace the pages: an earlier allocation of the same request is no longer valid."""
        self.block_ids = list(block_ids)

    def reported(self, data: RequestData, *, is_new: bool) -> bool:
        """Process the engine's report of one step. Returns whether the prefill certainly ends in that step."""
        self._reports += 1
        if self._reports == 1:
            return self._first_report(data, is_new=is_new)
        if not self._is_replayed:
            self.block_ids += data.new_block_ids
        if self._reports == 2:
            self._confirm(data.computed_position)
        return not self._may_have_gaps and self._ends(data.computed_position, data.num_scheduled_tokens)

    @property
    def _may_have_gaps(self) -> bool:
        """Whether it is unknown how much of the claim was served, or more was served than loaded."""
        return bool(self.load.tokens) and (self.served_tokens is None or self.served_tokens > self.loaded_tokens)

    def ended(self, tokens: int) -> None:
        """The request is finished with ``tokens`` in total. If it generated any, it has computed its whole prompt."""
        if self._reports == 1 and tokens > len(self.tokens):
            self._confirm(len(self.tokens))

    def _first_report(self, data: RequestData, *, is_new: bool) -> bool:
        """The new pages of a replayed request extend a list that no longer exists, so they are ignored."""
        self._is_replayed = not is_new
        self._first_step_tokens = data.num_scheduled_tokens
        if is_new and len(data.new_block_ids) > len(self.block_ids):
            self.block_ids = list(data.new_block_ids)
        if not self.load.tokens:
            return self._ends(data.computed_position, data.num_scheduled_tokens)
        rest = len(self.tokens) - self.load.boundary - self.load.tokens
        return self.loaded_tokens == self.load.tokens and data.num_scheduled_tokens == rest

    def _ends(self, position: int, scheduled_tokens: int) -> bool:
        """Whether this step computes the prompt's last token. Decoding steps start at or beyond the prompt's end."""
        return position < len(self.tokens) <= position + scheduled_tokens

    def _confirm(self, position: int) -> None:
        """Derive ``served_tokens`` from the position after the first step.

        A request that just began to decode reports one token less until its first token is known.
        """
        length = len(self.tokens)
        ends = (length, length - 1) if position == length - 1 else (min(position, length),)
        for end in ends:
            served = end - self.load.boundary - self._first_step_tokens
            if 0 <= served <= self.load.tokens and served % self.block_tokens == 0:
                self.served_tokens = served
                return
