"""Which finished requests lend their blocks to isolated prefills, and what becomes of their passages.

A complete prefill is copied into the store like any other donor. Passages that got none are handed back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semblend.contract import TokenRange
from semblend.integration.vllm.capture import CaptureJob, CaptureQueue
from semblend.integration.vllm.commands import PrefillCommand
from semblend.integration.vllm.options import ConnectorOptions
from semblend.integration.vllm.passage_prefill import (
    HEAD_TOKENS,
    MAX_HELD_FRACTION,
    PassageJob,
    PassageQueue,
    passage_text,
)
from semblend.integration.vllm.request_record import VllmRequest

if TYPE_CHECKING:
    from collections.abc import Callable


class IsolatedPrefills:
    """``reserve`` makes room for the donor of a job, or returns ``None`` when it is not wanted or does not fit.

    ``on_unheld`` gets the finished requests whose blocks can be released without a copy.
    """

    def __init__(
        self,
        options: ConnectorOptions,
        captures: CaptureQueue,
        block_tokens: int,
        reserve: Callable[[PassageJob], CaptureJob | None],
        on_unheld: Callable[[str], None],
    ) -> None:
        self._options = options
        self._captures = captures
        self._block_tokens = block_tokens
        self._reserve = reserve
        self._on_unheld = on_unheld
        self._queue = PassageQueue()
        self._copying: dict[str, PassageJob] = {}  # complete, and being copied into the store
        self._left: list[tuple[VllmRequest, list[TokenRange]]] = []

    @property
    def held_blocks(self) -> int:
        return self._queue.held_blocks

    @property
    def is_lending(self) -> bool:
        """Whether finished requests lend blocks."""
        return bool(len(self._queue))

    def offer(self, record: VllmRequest, novel: list[TokenRange], block_ids: list[int], total_blocks: int) -> bool:
        """A blended request is finished. True when its blocks must wait for an isolated prefill of ``novel``."""
        room = sum(len(part) for part in novel) + HEAD_TOKENS
        held = self._captures.waiting_blocks + self.held_blocks + len(block_ids)
        may_lend = held <= MAX_HELD_FRACTION * total_blocks and self._queue.has_room(room)
        if not self._options.prefill_passages or not may_lend or not self._captures.wants(record.hints.capture, room):
            self._left.append((record, novel))
            return False
        own_blocks = block_ids[-(-record.exact_prefix_tokens // self._block_tokens) :]
        tokens = passage_text(record.tokens, novel, len(own_blocks) * self._block_tokens)
        scratch = tuple(own_blocks[: -(-len(tokens) // self._block_tokens)])
        self._queue.add(PassageJob(record, novel, tokens, scratch, len(block_ids)))
        return True

    def next_slice(self, *, idle: bool, pressed: bool) -> PrefillCommand | None:
        """This step's slice, if the engine is idle. A complete prefill is copied from this step on.

        ``pressed``: a request waits for blocks, so none may be lent.
        """
        if self._queue.note(idle=idle) or pressed:
            self.stop()
        job = self._queue.first() if idle else None
        while job is not None and job.copy is None and not self._begin(job):
            self._queue.drop(job.request_id)
            self._end(job)
            job = self._queue.first()
        if job is None:
            return None
        command = self._queue.next_slice(job)
        if job.is_done and job.copy is not None:
            self._copying[job.copy.donor_id] = job
            self._captures.await_copy(job.copy)
        return command

    def stop(self) -> None:
        """End all; the next commands return the blocks lent to them."""
        for job in self._queue.take_all():
            self._end(job)

    def abandon(self, request_id: str) -> None:
        """The blocks of this request are freed now."""
        if (job := self._queue.drop(request_id)) is not None and job.copy is not None:
            self._captures.give_up(job.copy)

    def stored(self, donor_id: str) -> None:
        self._copying.pop(donor_id, None)

    def not_copied(self, donor_id: str) -> None:
        """The copy of this donor was given up."""
        if (job := self._copying.pop(donor_id, None)) is not None:
            self._left.append((job.record, job.novel))

    def give_up(self, donor_id: str) -> None:
        """Something of this donor failed: end the prefill for it."""
        if (job := self._queue.drop_donor(donor_id)) is not None:
            self._end(job)

    def take_left(self) -> list[tuple[VllmRequest, list[TokenRange]]]:
        """Passages that were left without a donor."""
        taken, self._left = self._left, []
        return taken

    def forget_all(self) -> None:
        """Every prefill was stopped, and nothing is handed back."""
        self._left.clear()
        self._copying.clear()

    def _begin(self, job: PassageJob) -> bool:
        """Reserve late, so that no donor is evicted for a prefill that never runs and no passage is prefilled twice."""
        job.copy = self._reserve(job)
        return job.copy is not None

    def _end(self, job: PassageJob) -> None:
        """End without a donor: the blocks are returned, and the passages get another chance when they repeat."""
        if job.copy is not None:
            self._captures.give_up(job.copy)
        self._on_unheld(job.request_id)
        self._left.append((job.record, job.novel))
