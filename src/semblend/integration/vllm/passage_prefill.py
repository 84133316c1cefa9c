"""Isolated prefill: passages that first appeared in a blended request are computed again on their own, when idle.

Their KV in the request itself attended to blended context and is not kept. The finished request's blocks serve as
scratch space until the exact KV is copied; they are returned as soon as the engine needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import TokenRange
from semblend.integration.vllm.capture import CaptureJob
from semblend.integration.vllm.commands import PrefillCommand
from semblend.integration.vllm.request_record import VllmRequest

# The prompt's first tokens precede the passages, so that no passage starts a sequence.
HEAD_TOKENS: Final = 32
# Computed per idle step: the longest wait of a request that arrives in the meantime.
STEP_TOKENS: Final = 128
# After this many busy steps in a row no blocks are lent until the engine is idle again.
MAX_BUSY_STEPS: Final = 512
# The longest wait of a reset, a pause or a shutdown.
MAX_QUEUED_TOKENS: Final = 4096
MAX_HELD_FRACTION: Final = 0.125


def passage_text(prompt: NDArray[np.uint32], novel: Sequence[TokenRange], room_tokens: int) -> NDArray[np.uint32]:
    """The tokens to prefill: a short head, then the novel passages one after another, as far as there is room."""
    head = min(HEAD_TOKENS, novel[0].start)
    parts = [prompt[:head], *(prompt[stretch.start : stretch.end] for stretch in novel)]
    return np.concatenate(parts)[:room_tokens]


@dataclass(slots=True)
class PassageJob:
    """Passages of a finished request, and its blocks. ``copy`` is set once the prefill has begun.

    ``block_ids`` are scratch space; ``held_blocks`` counts all the request's, which the engine frees together.
    """

    record: VllmRequest
    novel: list[TokenRange]
    tokens: NDArray[np.uint32]
    block_ids: tuple[int, ...]
    held_blocks: int
    copy: CaptureJob | None = None
    computed: int = 0

    @property
    def request_id(self) -> str:
        return self.record.request_id

    @property
    def is_done(self) -> bool:
        return self.computed == len(self.tokens)


class PassageQueue:
    """Finished requests whose blocks are lent to an isolated prefill, oldest first."""

    def __init__(self) -> None:
        self._jobs: dict[str, PassageJob] = {}
        self._busy_steps = 0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def held_blocks(self) -> int:
        return sum(job.held_blocks for job in self._jobs.values())

    def has_room(self, tokens: int) -> bool:
        queued = sum(len(job.tokens) - job.computed for job in self._jobs.values())
        return self._busy_steps < MAX_BUSY_STEPS and queued + tokens <= MAX_QUEUED_TOKENS

    def add(self, job: PassageJob) -> None:
        self._jobs[job.request_id] = job

    def note(self, *, idle: bool) -> bool:
        """Count one step. Returns whether the engine has been busy for too long to keep lending blocks."""
        self._busy_steps = 0 if idle else self._busy_steps + 1
        return self._busy_steps >= MAX_BUSY_STEPS

    def first(self) -> PassageJob | None:
        return next(iter(self._jobs.values()), None)

    def next_slice(self, job: PassageJob) -> PrefillCommand:
        """The next tokens of a job that has begun; with the last of them it leaves the queue."""
        assert job.copy is not None, "room for the donor is reserved before anything is computed"
        start, job.computed = job.computed, min(job.computed + STEP_TOKENS, len(job.tokens))
        if job.is_done:
            del self._jobs[job.request_id]
        token_ids = job.tokens[start : job.computed].astype(np.int64)
        return PrefillCommand(job.request_id, job.copy.donor_id, job.block_ids, start, token_ids)

    def drop(self, request_id: str) -> PassageJob | None:
        return self._jobs.pop(request_id, None)

    def drop_donor(self, donor_id: str) -> PassageJob | None:
        found = [job for job in self._jobs.values() if job.copy is not None and job.copy.donor_id == donor_id]
        return self.drop(found[0].request_id) if found else None

    def take_all(self) -> list[PassageJob]:
        jobs = list(self._jobs.values())
        self._jobs.clear()
        return jobs
