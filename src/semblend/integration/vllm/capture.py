"""Turns finished prefills into donors: a bounded slice per engine step, never before the request's first token.

The queue applies the capture policy, reserves room and hands out the slices.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from semblend.contract import Namespace
from semblend.integration.core.donor_book import Donor, DonorBook
from semblend.integration.vllm.commands import CaptureCommand
from semblend.integration.vllm.options import ConnectorOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.v1.request import Request

# Maximum fraction of the engine's blocks that finished requests may hold until they are copied.
MAX_WAITING_FRACTION: Final = 0.25


@dataclass(slots=True)
class CaptureJob:
    """The first ``tokens`` of a request on their way into the store."""

    request: Request
    donor_id: str
    tokens: int
    preemptions: int
    cursor: int = 0
    held_blocks: int = 0  # all blocks that wait with it: the engine frees a request's blocks together
    released_blocks: tuple[int, ...] | None = None  # set when the request is finished and its blocks wait for the copy


class CaptureQueue:
    """Jobs by request. ``on_evicted`` receives donors that were evicted for room, ``on_given_up`` incomplete ones."""

    def __init__(
        self,
        options: ConnectorOptions,
        book: DonorBook,
        block_tokens: int,
        bytes_per_token: int,
        on_evicted: Callable[[Donor], None],
        on_given_up: Callable[[str], None],
        *,
        seed: int | None = None,
    ) -> None:
        self._options = options
        self._book = book
        self._block_tokens = block_tokens
        self._bytes_per_token = bytes_per_token
        self._step_tokens = max(block_tokens, options.capture_step_tokens // block_tokens * block_tokens)
        self._on_evicted = on_evicted
        self._on_given_up = on_given_up
        self._jobs: dict[str, CaptureJob] = {}
        self._waiting: dict[str, CaptureJob] = {}
        self._dropped: list[str] = []
        self._copied: dict[str, tuple[Request, int]] = {}  # living requests with slices, and their preemptions
        self._frees_copied = False
        self._random = random.Random(seed)

    def wants(self, hint: bool | None, tokens: int) -> bool:
        """The policy: whether a request of this length is to become a donor."""
        if hint is False or tokens < self._options.min_capture_tokens:
            return False
        if hint or self._options.capture == "all":
            return True
        return self._options.capture == "sampled" and self._random.random() < self._options.capture_fraction

    def open(self, request: Request, donor_id: str, tokens: int, namespace: Namespace) -> bool:
        """Reserve room for the first ``tokens`` of a request. False when the store is too small for them."""
        job = self.reserve(request, donor_id, tokens, namespace)
        if job is not None:
            self._jobs[request.request_id] = job
        return job is not None

    def reserve(self, request: Request, donor_id: str, tokens: int, namespace: Namespace) -> CaptureJob | None:
        """Room for ``tokens`` of a request, as a job that is not queued yet; ``None`` when the store is too small."""
        gone = self._book.reserve(Donor(donor_id, tokens, namespace, tokens * self._bytes_per_token))
        if gone is None:
            return None
        for donor in gone:
            self._dropped.append(donor.donor_id)
            self._on_evicted(donor)
        return CaptureJob(request, donor_id, tokens, request.num_preemptions)

    def await_copy(self, job: CaptureJob) -> None:
        """The blocks of a finished request hold what is to be copied."""
        self._waiting[job.request.request_id] = job

    @property
    def waiting_blocks(self) -> int:
        return sum(job.held_blocks for job in self._waiting.values())

    def stop_waiting(self, donor_id: str) -> str | None:
        """Stop copying for this donor; the finished request whose blocks waited for it."""
        found = [request_id for request_id, job in self._waiting.items() if job.donor_id == donor_id]
        for request_id in found:
            del self._waiting[request_id]
        return found[0] if found else None

    def slices(self, block_ids_of: Callable[[str], list[int]]) -> list[CaptureCommand]:
        """The next slice of every job whose prefill is done. Preempted requests lose what was copied."""
        for request_id, (request, preemptions) in list(self._copied.items()):
            if request.num_preemptions != preemptions:
                self._freed(request_id)
        for job in list(self._jobs.values()):
            if job.request.num_preemptions != job.preemptions:
                self.cancel(job.request.request_id)
        ready = [job for job in self._jobs.values() if job.request.num_computed_tokens >= job.tokens]
        blocks = [(job, job.released_blocks or ()) for job in self._waiting.values()]
        blocks += [(job, tuple(block_ids_of(job.request.request_id))) for job in ready]
        # Nothing below can fail: a slice that was cut will be sent.
        commands: list[CaptureCommand] = []
        budget = self._step_tokens
        for job, block_ids in blocks:
            tokens = min(job.tokens - job.cursor, budget)
            if not tokens:
                break
            budget -= -(-tokens // self._block_tokens) * self._block_tokens
            commands.append(self._slice(job, tokens, block_ids))
        return commands

    def finish(self, request: Request, block_ids: list[int], total_blocks: int, lent_blocks: int = 0) -> bool:
        """The request is finished. True when its blocks must wait until the rest of its copy is done."""
        self._freed(request.request_id)
        job = self._jobs.pop(request.request_id, None)
        if job is None:
            return False
        is_whole = job.preemptions == request.num_preemptions and request.num_computed_tokens >= job.tokens
        waiting_blocks = self.waiting_blocks + lent_blocks + len(block_ids)
        needed = -(-job.tokens // self._block_tokens)
        if not is_whole or len(block_ids) < needed or waiting_blocks > MAX_WAITING_FRACTION * total_blocks:
            self.give_up(job)
            return False
        job.released_blocks, job.held_blocks = tuple(block_ids), len(block_ids)
        self._waiting[request.request_id] = job
        return True

    def cancel(self, request_id: str) -> None:
        """Give up the unfinished capture of a request that is still alive."""
        if (job := self._jobs.pop(request_id, None)) is not None:
            self.give_up(job)

    def abandon(self, request_id: str) -> None:
        """Give up an unfinished capture of a finished request whose blocks are freed now."""
        self._freed(request_id)
        self.cancel(request_id)
        if (job := self._waiting.pop(request_id, None)) is not None:
            self.give_up(job)

    def cancel_donor(self, donor_id: str) -> None:
        """Stop copying out of requests that are still alive."""
        for request_id, job in list(self._jobs.items()):
            if job.donor_id == donor_id:
                self.cancel(request_id)

    def forget_all(self) -> list[str]:
        """Give up everything; the finished requests whose blocks are still held and must now be released."""
        for job in [*self._jobs.values(), *self._waiting.values()]:
            self.give_up(job)
        held = list(self._waiting)
        self._jobs.clear()
        self._waiting.clear()
        return held

    def take_frees_copied(self) -> bool:
        """Whether blocks that a slice was cut from were freed since the last call."""
        taken, self._frees_copied = self._frees_copied, False
        return taken

    def _freed(self, request_id: str) -> None:
        self._frees_copied |= self._copied.pop(request_id, None) is not None

    def take_dropped(self) -> list[str]:
        """Donors the workers must drop: evicted for room, or given up."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def give_up(self, job: CaptureJob) -> None:
        """Free the room of a job and let the workers drop what they have of it."""
        self._book.remove(job.donor_id)
        self._dropped.append(job.donor_id)
        self._on_given_up(job.donor_id)

    def _slice(self, job: CaptureJob, tokens: int, block_ids: tuple[int, ...]) -> CaptureCommand:
        first = job.cursor // self._block_tokens
        last = -(-(job.cursor + tokens) // self._block_tokens)
        command = CaptureCommand(
            request_id=job.request.request_id,
            donor_id=job.donor_id,
            donor_tokens=job.tokens,
            start=job.cursor,
            tokens=tokens,
            block_ids=block_ids[first:last],
            release=job.released_blocks is not None and job.cursor + tokens == job.tokens,
        )
        job.cursor += tokens
        if job.released_blocks is None:
            self._copied[command.request_id] = (job.request, job.request.num_preemptions)
        if command.is_last:
            jobs = self._jobs if job.released_blocks is None else self._waiting
            del jobs[job.request.request_id]
        return command
