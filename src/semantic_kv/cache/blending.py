"""Blended requests and their repair (`policy.reuse`), over dictionaries and lists, one request at a time.

The cache calls it at fixed points: ``arrived`` before the look-up, ``plan`` after it, ``served`` before the release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from semantic_kv.cache.result import BlendTotals
from semantic_kv.policy.reuse import (
    BUSY_STEPS_PER_SLICE,
    MAX_HELD_FRACTION,
    MAX_JOBS,
    MAX_OPEN,
    MIN_LIKELIHOOD,
    PRIOR_WEIGHT,
    PRIORS,
    RETURN_WINDOW_MS,
    SLICE_TOKENS,
    Reuse,
)
from sembase.latency import PAIRS_PER_UNIT
from sembase.trace.columns import BlockTrace


class Blocks(Protocol):
    """What repairs need of the cache."""

    capacity: int
    used: int

    def size_of(self, node: int) -> int: ...
    def hold(self, node: int) -> None: ...
    def let_go(self, node: int) -> None: ...
    def publish(self, node: int) -> None: ...


@dataclass(slots=True, eq=False)
class Job:
    row: list[int]
    exact: int  # leading blocks of the row
    exact_tokens: int
    private: int
    size: int
    ready_ms: float
    done: float = 0.0


@dataclass(slots=True)
class Blending:
    reuse: Reuse
    trace: BlockTrace
    blocks: Blocks
    jobs: list[Job] = field(default_factory=list)
    requests: int = 0
    reused_tokens: int = 0
    repaired_tokens: int = 0
    published: int = 0
    repair_ms: float = 0.0
    now_ms: float = 0.0
    prefill_free_ms: float = 0.0
    busy_until_ms: float = 0.0
    exact: set[int] = field(default_factory=set)
    donors: set[int] = field(default_factory=set)
    open: dict[int, tuple[int, float]] = field(default_factory=dict)
    opened: list[tuple[int, float]] = field(default_factory=list)
    returns: dict[int, list[int]] = field(default_factory=dict)
    loaded_blocks: int = 0

    def totals(self) -> BlendTotals:
        return BlendTotals(self.requests, self.reused_tokens, self.repaired_tokens, self.published, self.repair_ms)

    def tokens(self, nodes: list[int]) -> int:
        return int(self.trace.node_tokens[nodes].sum())

    def arrived(self, row: list[int], now_ms: float) -> None:
        self._repair_until(now_ms)
        while self.opened:
            node, since = self.opened[0]
            is_late = since < now_ms - RETURN_WINDOW_MS
            if not is_late and len(self.opened) < MAX_OPEN:
                break
            self.opened.pop(0)
            if node in self.open and self.open[node][1] == since:
                ending, _ = self.open.pop(node)
                if is_late:
                    self.returns.setdefault(ending, [0, 0])[0] += 1
        for node in row:
            if node in self.open:
                counts = self.returns.setdefault(self.open.pop(node)[0], [0, 0])
                counts[0] += 1
                counts[1] += 1

    def plan(self, row: list[int], start: int) -> int:
        """Tokens reused after the first ``start`` blocks."""
        runs: list[list[int]] = [[]]
        for node in row[start:-1]:
            if node not in self.exact and int(self.trace.content[node]) in self.donors:
                runs[-1].append(node)
            else:
                runs.append([])
        boundary = self.reuse.boundary_recompute_tokens
        sizes = [(len(run), self.tokens(run)) for run in runs if run]
        taken = [each for each in sizes if each[1] >= self.reuse.min_run_tokens and each[1] > boundary]
        reused = sum(tokens - boundary for _, tokens in taken)
        self.loaded_blocks = sum(blocks for blocks, _ in taken)
        least = max(1, self.reuse.min_inexact_tokens, self.reuse.min_reuse_ratio * self.tokens(row[start:]))
        return reused if reused >= least else 0

    def served(
        self,
        row: list[int],
        start: int,
        reused: int,
        private: int | None,
        ending: int,
        output_tokens: int,
        now_ms: float,
    ) -> None:
        """``private`` is the size of the request's private blocks, None if there was no room for all of them."""
        job = None
        if reused:
            self.requests += 1
            self.reused_tokens += reused
            job = self._begin(row, start, private, ending)
            if job is None:
                self.blocks.used -= private or 0
        else:
            self._note_donor(row)
        hit = self.tokens(row[:start])
        end_ms = self._serve_ms(
            self.tokens(row) - hit - reused, hit + reused, self.loaded_blocks if reused else 0, output_tokens, now_ms
        )
        if job is not None:
            job.ready_ms = end_ms
        is_partial = len(row) > 1 and self.trace.node_tokens[row[-1]] < self.trace.node_tokens[row[0]]
        if row:
            last = row[-2] if is_partial else row[-1]
            self.open[last] = (ending, end_ms)
            self.opened.append((last, end_ms))

    def stop(self) -> bool:
        """A request lacks blocks: end every repair."""
        had = bool(self.jobs)
        for job in list(self.jobs):
            self._end(job)
        return had

    def _begin(self, row: list[int], start: int, private: int | None, ending: int) -> Job | None:
        size = sum(self.blocks.size_of(node) for node in row)
        room = int(MAX_HELD_FRACTION * self.blocks.capacity) - size
        is_on = self.reuse.name in ("blend_idle", "blend_likely")
        if not is_on or private is None or room < 0:
            return None
        answers, returns = self.returns.get(ending, (0, 0))
        chance = (returns + PRIORS[ending] * PRIOR_WEIGHT) / (answers + PRIOR_WEIGHT)
        if self.reuse.name == "blend_likely" and chance < MIN_LIKELIHOOD:
            return None
        while self.jobs and (len(self.jobs) >= MAX_JOBS or sum(job.size for job in self.jobs) > room):
            self._end(self.jobs[0])
        for other in [job for job in self.jobs if job.row == row[: len(job.row)]]:
            self._end(other)
        for node in row[:start]:
            self.blocks.hold(node)
        self.jobs.append(Job(list(row), start, self.tokens(row[:start]), private, size, math.inf))
        return self.jobs[-1]

    def _end(self, job: Job) -> None:
        self.jobs.remove(job)
        for node in reversed(job.row[: job.exact]):
            self.blocks.let_go(node)
        self.blocks.used -= job.private

    def _repair_until(self, now_ms: float) -> None:
        at = self.now_ms
        while self.jobs and at < now_ms:
            is_idle = at >= self.busy_until_ms
            until = now_ms if is_idle else min(now_ms, self.busy_until_ms)
            ready = [job for job in self.jobs if job.ready_ms <= at]
            if not ready:
                if is_idle:
                    break
                at = min([until, *(job.ready_ms for job in self.jobs)])
            elif not is_idle and (self.reuse.name != "blend_likely" or self._decode_ms() == 0.0):
                at = until
            else:
                at = self._repair(ready[-1], at, until, is_idle=is_idle)
        self.now_ms = now_ms

    def _repair(self, job: Job, at: float, until: float, *, is_idle: bool) -> float:
        node = job.row[job.exact]
        tokens, before = self.tokens([node]), job.exact_tokens
        model = self.reuse.latency
        pairs = (float(tokens) * before + tokens * (tokens + 1.0) / 2.0) / PAIRS_PER_UNIT
        cost = model.ms_per_uncached_token * tokens + model.ms_per_million_pairs * pairs
        cost += model.step_ms * tokens / SLICE_TOKENS
        whole = cost if is_idle else max(cost, self._decode_ms() * BUSY_STEPS_PER_SLICE / SLICE_TOKENS * tokens)
        left = 1.0 - job.done
        if at + left * whole > until:
            part = (until - at) / whole
            job.done += part
            self.repair_ms += part * cost
            return until
        self.repair_ms += left * cost
        self.repaired_tokens += tokens
        size = self.blocks.size_of(node)
        self.blocks.used -= size
        job.private -= size
        self.blocks.publish(node)
        self.exact.add(node)
        job.exact, job.exact_tokens, job.done = job.exact + 1, before + tokens, 0.0
        if job.exact == len(job.row):
            self._note_donor(job.row)
            self._end(job)
        return at + left * whole

    def _decode_ms(self) -> float:
        return self.reuse.latency.step_ms + self.reuse.latency.ms_per_decoding_stream

    def _serve_ms(self, uncached: int, cached: int, loaded: int, output_tokens: int, now_ms: float) -> float:
        model = self.reuse.latency
        pairs = (float(uncached) * cached + uncached * (uncached + 1.0) / 2.0) / PAIRS_PER_UNIT
        prefill = model.step_ms + model.ms_per_uncached_token * uncached + model.ms_per_million_pairs * pairs
        prefill += model.ms_per_cached_token * cached + model.ms_per_loaded_block * loaded
        self.prefill_free_ms = max(now_ms, self.prefill_free_ms) + prefill
        end_ms = self.prefill_free_ms + self._decode_ms() * max(0, output_tokens - 1)
        self.busy_until_ms = max(self.busy_until_ms, end_ms)
        return end_ms

    def _note_donor(self, row: list[int]) -> None:
        self.exact.update(row)
        self.donors.update(int(self.trace.content[node]) for node in row)
