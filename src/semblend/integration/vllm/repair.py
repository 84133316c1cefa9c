"""Repair: once a blended request has answered, its inexact positions are computed again, exactly, in its own blocks.

Left to right, in slices, in steps with room. What is exact from the front gets its public hashes and becomes part of
the engine's prefix cache, so that the session's next turn is an ordinary exact hit. Stopping at any point is safe: a
block is published only when every position up to its end is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from semblend.integration.core.repair_schedule import MAX_JOBS, STEP_TOKENS, RepairSchedule, continues
from semblend.integration.shared_options import RepairPolicy
from semblend.integration.vllm.commands import RepairCommand
from semblend.integration.vllm.request_record import VllmRequest

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.request import Request

MAX_HELD_FRACTION: Final = 0.5  # of the engine's blocks


@dataclass(slots=True)
class RepairJob:
    """A finished request whose blocks are held. ``exact`` positions are exact, ``sent`` are computed or on the way."""

    number: int
    record: VllmRequest
    tokens: NDArray[np.uint32]  # prompt and answer, whole blocks
    block_ids: tuple[int, ...]
    held_blocks: int
    exact: int
    published_blocks: int
    sent: int = 0
    slices: deque[int] = field(default_factory=deque)  # ends of the slices that the workers have not reported yet

    @property
    def request_id(self) -> str:
        return self.record.request_id

    @property
    def is_sent(self) -> bool:
        return self.sent >= len(self.tokens)

    @property
    def is_done(self) -> bool:
        return self.exact >= len(self.tokens)


class Repairs:
    """The finished requests being repaired, the newest first. Every method is called on the scheduler's thread.

    ``on_repaired`` gets a job that is exact to its end; it returns whether it takes over the release of the blocks.
    """

    def __init__(
        self,
        policy: RepairPolicy,
        block_tokens: int,
        on_published: Callable[[int], None],
        on_repaired: Callable[[RepairJob], bool],
    ) -> None:
        self._schedule = RepairSchedule(policy)
        self._block_tokens = block_tokens
        self._on_published = on_published
        self._on_repaired = on_repaired
        self._jobs: dict[int, RepairJob] = {}
        self._unheld: list[str] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def held_blocks(self) -> int:
        return sum(job.held_blocks for job in self._jobs.values())

    @property
    def has_waiting_blocks(self) -> bool:
        return bool(self._jobs or self._unheld)

    def arrived(self, request: Request) -> None:
        """A request arrived, whose hashes are still public."""
        self._schedule.arrived(request.block_hashes)

    def accepts(self, record: VllmRequest, block_ids: list[int], total_blocks: int, other_held: int) -> bool:
        """A blended request has answered: whether to repair it. Its blocks must be held if so.

        Older repairs are given up where it has no room beside them.
        """
        request = record.request
        end = str(request.get_finished_reason())
        if not record.namespace.is_known or not self._schedule.is_worth_it(end):
            return False
        if _whole_tokens(request, self._block_tokens) <= record.exact_prefix_tokens:
            return False
        room = MAX_HELD_FRACTION * total_blocks - other_held - len(block_ids)
        if room < 0:
            return False
        while self._jobs and (len(self._jobs) >= MAX_JOBS or self.held_blocks > room):
            self._end(next(iter(self._jobs.values())))
        return True

    def answered(self, request: Request) -> None:
        """A request has ended, repaired or not; its hashes are public again. Its session may come back."""
        whole = _whole_tokens(request, self._block_tokens) // self._block_tokens
        if 0 < whole <= len(request.block_hashes):
            self._schedule.answered(request.block_hashes[whole - 1], str(request.get_finished_reason()))

    def add(self, record: VllmRequest, block_ids: list[int], boundary: int, manager: KVCacheManager) -> None:
        """Begin to repair a request whose hashes are public again, and of whose blocks those before ``boundary`` are.

        Its exact head is published at once.
        """
        request = record.request
        whole = _whole_tokens(request, self._block_tokens)
        tokens = np.asarray(request.all_token_ids[:whole], dtype=np.uint32)
        exact = min(max(record.exact_tokens, boundary), whole)
        self._serial += 1
        job = RepairJob(
            self._serial,
            record,
            tokens,
            tuple(block_ids[: whole // self._block_tokens]),
            len(block_ids),
            exact,
            boundary // self._block_tokens,
            exact,
        )
        for other in [other for other in self._jobs.values() if _continues(job, other)]:
            self._end(other)
        self._jobs[job.number] = job
        self._publish(job, manager)
        if job.is_done:
            self._finish(job)

    def next_slice(self, room_tokens: int, *, idle: bool) -> RepairCommand | None:
        """This step's slice, if the step has room for one."""
        if not self._schedule.has_room(idle=idle):
            return None
        job = next((job for job in reversed(self._jobs.values()) if not job.is_sent), None)
        count = min(STEP_TOKENS, room_tokens)
        if job is None or count <= 0:
            return None
        self._schedule.ran()
        start, job.sent = job.sent, min(job.sent + count, len(job.tokens))
        job.slices.append(job.sent)
        return RepairCommand(job.number, job.request_id, job.block_ids, start, job.tokens[start : job.sent].astype(int))

    def computed(self, number: int, manager: KVCacheManager) -> None:
        """The workers computed the oldest slice they had not reported. A job that has ended meanwhile is unknown."""
        if (job := self._jobs.get(number)) is None:
            return
        job.exact = job.slices.popleft()
        self._publish(job, manager)
        if job.is_done:
            self._finish(job)

    def failed(self, number: int) -> str | None:
        """A slice was not computed: what follows it is not exact. The request that it belonged to."""
        if (job := self._jobs.get(number)) is None:
            return None
        self._end(job)
        return job.request_id

    def stop(self) -> None:
        """The engine needs the blocks: end every repair. What was published stays."""
        for job in list(self._jobs.values()):
            self._end(job)

    def abandon(self, request_id: str) -> None:
        """The blocks of this request are freed now."""
        for number, job in list(self._jobs.items()):
            if job.request_id == request_id:
                del self._jobs[number]
        self._unheld = [other for other in self._unheld if other != request_id]

    def take_unheld(self) -> list[str]:
        """Finished requests whose blocks can be released."""
        taken, self._unheld = self._unheld, []
        return taken

    def _publish(self, job: RepairJob, manager: KVCacheManager) -> None:
        """Give every full block before ``exact`` its public hash."""
        full = job.exact // self._block_tokens
        if full <= job.published_blocks:
            return
        manager.block_pool.cache_full_blocks(
            request=job.record.request,
            blocks=list(manager.get_blocks(job.request_id).blocks[0]),
            num_cached_blocks=job.published_blocks,
            num_full_blocks=full,
            block_size=self._block_tokens,
            kv_cache_group_id=0,
        )
        self._on_published((full - job.published_blocks) * self._block_tokens)
        job.published_blocks = full

    def _finish(self, job: RepairJob) -> None:
        del self._jobs[job.number]
        if not self._on_repaired(job):
            self._unheld.append(job.request_id)

    def _end(self, job: RepairJob) -> None:
        del self._jobs[job.number]
        self._unheld.append(job.request_id)


def _whole_tokens(request: Request, block_tokens: int) -> int:
    """Tokens in full blocks. The last token of an answer was sampled, but its KV was never computed."""
    return min(request.num_computed_tokens, request.num_tokens - 1) // block_tokens * block_tokens


def _continues(job: RepairJob, other: RepairJob) -> bool:
    """Whether ``job`` repairs everything that ``other`` does: a later turn of the same session."""
    return job.record.namespace == other.record.namespace and continues(job.tokens, other.tokens)
