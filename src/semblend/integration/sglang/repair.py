"""Repair: once a blended request has answered, its prompt and answer are computed again into the tree, exactly.

Left to right, in slices of whole pages, in steps with room. A slice continues what the tree holds, attends to the
tree's own KV, is computed in new slots and inserted at once; the inexact slots are freed with the request. So between
two slices a repair is nothing but tokens, and whatever happens to the tree in the meantime, it holds exact KV alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semblend.integration.core.repair_schedule import MAX_JOBS, STEP_TOKENS, RepairSchedule, continues
from semblend.integration.core.session_returns import block_hashes

if TYPE_CHECKING:
    from semblend.contract import Namespace
    from semblend.integration.border import Border
    from semblend.integration.shared_options import RepairPolicy


@dataclass(slots=True, kw_only=True)
class RepairJob:
    """``tokens`` of a prompt and its answer, in whole pages; the tree held the first ``reached`` when last seen."""

    rid: str
    tokens: NDArray[np.uint32]
    prompt_tokens: int
    namespace: Namespace
    extra_key: str | None
    cache_salt: str | None
    is_donor: bool  # or may become one
    reached: int


class Extended(NamedTuple):
    """How much of a job the tree held before a slice, and how much after it; equal if nothing was computed."""

    start: int
    end: int


Extend = Callable[[RepairJob, int], Extended]  # at most so many tokens


class Repairs:
    """The answered requests to repair, the newest first. Called on the scheduler's thread.

    ``on_slice`` gets the tokens and seconds of each slice, ``on_repaired`` a job that the tree holds to its end.
    """

    def __init__(
        self,
        policy: RepairPolicy,
        page_tokens: int,
        border: Border,
        on_slice: Callable[[int, float], None],
        on_repaired: Callable[[RepairJob], None],
    ) -> None:
        self._schedule = RepairSchedule(policy)
        self._page = page_tokens
        self._slice_tokens = max(page_tokens, STEP_TOKENS // page_tokens * page_tokens)
        self._border = border
        self._on_slice = on_slice
        self._on_repaired = on_repaired
        self._jobs: dict[int, RepairJob] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def is_on(self) -> bool:
        return self._schedule.is_on

    def arrived(self, tokens: NDArray[np.uint32], namespace: Namespace) -> None:
        if self.is_on:
            self._schedule.arrived(block_hashes(tokens, namespace.digest()))

    def answered(self, tokens: NDArray[np.uint32], namespace: Namespace, end: str) -> None:
        """A request has ended, blended or not. ``tokens`` are its prompt and its answer."""
        if self.is_on and (hashes := block_hashes(tokens, namespace.digest())):
            self._schedule.answered(hashes[-1], end)

    def add(self, job: RepairJob, end: str) -> None:
        """A blended request has answered: repair it, if that is worth it."""
        job.tokens = job.tokens[: len(job.tokens) // self._page * self._page]
        is_short = len(job.tokens) <= job.reached
        if is_short or not job.namespace.is_known or not self._schedule.is_worth_it(end):
            return
        for number, other in list(self._jobs.items()):
            if job.namespace == other.namespace and continues(job.tokens, other.tokens):
                del self._jobs[number]
        if len(self._jobs) >= MAX_JOBS:
            del self._jobs[next(iter(self._jobs))]
        self._serial += 1
        self._jobs[self._serial] = job

    def step(self, extend: Extend, *, idle: bool) -> None:
        """One engine step: compute a slice of the newest job, if this step has room for it."""
        if not self._jobs or not self._schedule.has_room(idle=idle):
            return
        self._schedule.ran()
        number, job = next(reversed(self._jobs.items()))
        started = time.perf_counter()
        extended = self._border.call("repair", job.rid, partial(extend, job, self._slice_tokens), None)
        if number not in self._jobs:
            return
        if extended is None or extended.start < job.reached:
            del self._jobs[number]  # it failed; or the engine has evicted what was exact, to use its slots
            return
        job.reached = extended.end
        if extended.end > extended.start:
            self._on_slice(extended.end - extended.start, time.perf_counter() - started)
        elif extended.end < len(job.tokens):
            self._jobs.clear()  # no slot is free
        if extended.end >= len(job.tokens):
            del self._jobs[number]
            self._border.call("repair", job.rid, partial(self._on_repaired, job), None)

    def clear(self) -> None:
        self._jobs.clear()
