"""Passages first seen inside a blended request get a donor of their own: computed again, alone, while nobody waits.

Their KV in the request itself saw blended context and is not kept. The finished request's own blocks serve as scratch
space until the exact KV is copied; an engine that stays busy gets them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import TokenRange
from semblend.integration.vllm.capture import CaptureJob
from semblend.integration.vllm.orders import StudyOrder
from semblend.integration.vllm.provenance import RequestRecord

# The prompt's own beginning stands before the passages, so that none of them starts a sequence.
HEAD_TOKENS: Final = 32
# Computed per idle step: what a request that arrives meanwhile may have to wait for.
STEP_TOKENS: Final = 128
MAX_BUSY_STEPS: Final = 512
MAX_HELD_SHARE: Final = 0.125


def study_text(prompt: NDArray[np.uint32], novel: Sequence[TokenRange], room_tokens: int) -> NDArray[np.uint32]:
    """The tokens to compute: a short head, then the novel stretches one after another, as far as there is room."""
    head = min(HEAD_TOKENS, novel[0].start)
    parts = [prompt[:head], *(prompt[stretch.start : stretch.end] for stretch in novel)]
    return np.concatenate(parts)[:room_tokens]


@dataclass(slots=True)
class StudyJob:
    """``copy`` is what follows once all of ``token_ids`` are computed in the blocks that wait for it.

    ``held_blocks`` are all the finished request's: the engine frees them together.
    """

    record: RequestRecord
    novel: list[TokenRange]
    copy: CaptureJob
    token_ids: NDArray[np.int64]
    held_blocks: int
    computed: int = 0
    busy_steps: int = 0


class StudyDesk:
    """Finished requests whose blocks are lent to a study, oldest first."""

    def __init__(self) -> None:
        self._jobs: dict[str, StudyJob] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def has_room(self, blocks: int, total_blocks: int) -> bool:
        held = sum(job.held_blocks for job in self._jobs.values())
        return held + blocks <= MAX_HELD_SHARE * total_blocks

    def add(self, job: StudyJob) -> None:
        self._jobs[job.copy.request.request_id] = job

    def step(self, *, idle: bool) -> tuple[StudyOrder | None, list[StudyJob], list[StudyJob]]:
        """This step's slice, if nobody needs the engine; the jobs it completes; the jobs given up for good."""
        if not idle:
            for job in self._jobs.values():
                job.busy_steps += 1
            tired = [job for job in self._jobs.values() if job.busy_steps >= MAX_BUSY_STEPS]
            for job in tired:
                del self._jobs[job.copy.request.request_id]
            return None, [], tired
        if not self._jobs:
            return None, [], []
        request_id, job = next(iter(self._jobs.items()))
        end = min(job.computed + STEP_TOKENS, len(job.token_ids))
        block_ids = job.copy.released_blocks or ()
        order = StudyOrder(request_id, job.copy.donor_id, block_ids, job.computed, job.token_ids[job.computed : end])
        job.computed = end
        if end < len(job.token_ids):
            return order, [], []
        del self._jobs[request_id]
        return order, [job], []

    def drop(self, request_id: str) -> StudyJob | None:
        return self._jobs.pop(request_id, None)

    def drop_donor(self, donor_id: str) -> StudyJob | None:
        found = [request_id for request_id, job in self._jobs.items() if job.copy.donor_id == donor_id]
        return self._jobs.pop(found[0]) if found else None

    def forget_all(self) -> list[StudyJob]:
        jobs = list(self._jobs.values())
        self._jobs.clear()
        return jobs
