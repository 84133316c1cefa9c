"""One cell and its trace in, figures out: simulates, models TTFT, sums by batch of requests, by label and by tenant."""

from __future__ import annotations

import itertools
import time
from typing import Final

import numpy as np
import numpy.typing as npt

from semantic_kv.bound import clairvoyant, infinite
from semantic_kv.cache.result import CacheModel, Replay, Unit
from semantic_kv.experiment.cells import BoundName, Cell
from semantic_kv.experiment.figures import (
    BoundFigures,
    CellFigures,
    Figures,
    LabelFigures,
    Tally,
    TenantFigures,
    WeightSeries,
)
from semantic_kv.experiment.trace_store import StoredTrace
from semantic_kv.policy.reuse import Reuse
from semantic_kv.simulate import simulate
from sembase.labels import LABELS
from sembase.latency import LatencyModel, attended_pairs
from sembase.trace.columns import BlockTrace

_BATCHES: Final = 48  # contiguous stretches of the trace that the intervals resample
_PLAIN_PYTHON: Final = 5_000  # up to this many references, plain Python finishes before the core is compiled
_MAX_TENANTS: Final = 12
_MAX_SAMPLES: Final = 160
Ints = npt.NDArray[np.int64]


def run_cell(cell: Cell, held: StoredTrace, latency: LatencyModel) -> Figures:
    if isinstance(cell.task, str):
        return run_bound(cell.task, held.trace, cell.model, cell.unit, cell.capacity, latency)
    replay = simulate(
        held.trace,
        capacity=cell.capacity,
        admit=cell.task.admit,
        evict=cell.task.evict,
        model=cell.model,
        unit=cell.unit,
        options=cell.task.options(),
        seed=cell.seed,
        reuse=Reuse(cell.task.reuse, latency),
        reference=held.trace.reference_count <= _PLAIN_PYTHON,
    )
    return figures_of(replay, held, latency)


def figures_of(replay: Replay, held: StoredTrace, latency: LatencyModel) -> CellFigures:
    cached = replay.per_request_hit_tokens.astype(np.int64) + replay.per_request_reused_tokens
    ttft_ms = latency.ttft_ms(held.prompt_tokens - cached, cached)
    middle, late, last = (float(each) for each in np.percentile(ttft_ms, (50, 95, 99))) if ttft_ms.size else (0.0,) * 3
    columns = _Columns(held, replay, latency)
    return CellFigures(
        total=columns.tally(None),
        admitted=int(replay.admitted),
        refused=int(replay.refused),
        evicted=int(replay.evicted),
        ttft_p50_ms=middle,
        ttft_p95_ms=late,
        ttft_p99_ms=last,
        batches=columns.batches(),
        labels=_labels(replay),
        tenants=columns.tenants(),
        used_over_time=_used(replay),
        weights=_weights(replay),
        seconds=float(replay.seconds),
    )


class _Columns:
    """Per-request columns and their sums over groups of requests."""

    def __init__(self, held: StoredTrace, replay: Replay, latency: LatencyModel) -> None:
        self._tenant = held.trace.tenant
        self._references = np.diff(held.trace.offsets)
        self._hit_blocks = replay.per_request_hit_blocks
        self._hit_tokens = replay.per_request_hit_tokens.astype(np.int64)
        self._prompt_tokens = held.prompt_tokens
        self._latency = latency
        self._cached = self._hit_tokens + replay.per_request_reused_tokens
        self._pairs = attended_pairs(held.prompt_tokens - self._cached, self._cached)

    def tally(self, chosen: npt.NDArray[np.bool_] | slice | None) -> Tally:
        part = slice(None) if chosen is None else chosen
        requests = int(self._references[part].size)
        prompt, hit = int(self._prompt_tokens[part].sum()), int(self._hit_tokens[part].sum())
        cached = int(self._cached[part].sum())
        ttft_sum_ms = self._latency.ttft_sum_ms(requests, prompt - cached, cached, float(self._pairs[part].sum()))
        assert ttft_sum_ms is not None  # the pairs are known
        return Tally(
            requests,
            int(self._references[part].sum(dtype=np.int64)),
            int(self._hit_blocks[part].sum(dtype=np.int64)),
            prompt,
            hit,
            ttft_sum_ms,
        )

    def batches(self) -> tuple[Tally, ...]:
        edges = np.linspace(0, self._references.size, min(_BATCHES, self._references.size) + 1).astype(np.int64)
        return tuple(self.tally(slice(int(a), int(b))) for a, b in itertools.pairwise(edges) if b > a)

    def tenants(self) -> tuple[TenantFigures, ...]:
        """The largest by prompt tokens, then all others together; empty if the trace has no tenants."""
        known = self._tenant[self._tenant >= 0]
        if known.size == 0:
            return ()
        weight = np.bincount(known, weights=self._prompt_tokens[self._tenant >= 0])
        largest = np.argsort(-weight, kind="stable")[:_MAX_TENANTS]
        views = [TenantFigures(f"tenant {name}", self.tally(self._tenant == name)) for name in largest if weight[name]]
        rest = ~np.isin(self._tenant, largest)
        return (*views, TenantFigures("all others", self.tally(rest))) if rest.any() else tuple(views)


def _labels(replay: Replay) -> tuple[LabelFigures, ...]:
    rows = zip(LABELS, replay.references_by_label, replay.hits_by_label, replay.evictions_by_label, strict=True)
    return tuple(LabelFigures(label, int(seen), int(hit), int(gone)) for label, seen, hit, gone in rows if seen)


def _used(replay: Replay) -> tuple[tuple[int, int], ...]:
    rows = np.asarray(replay.used_over_time)
    return tuple((int(request), int(used)) for request, used in rows[_thinned(len(rows))])


def _weights(replay: Replay) -> WeightSeries | None:
    if replay.weights_over_time is None or len(replay.weights_over_time) == 0:
        return None
    kept = _thinned(len(replay.weights_over_time))
    rows = tuple(tuple(round(float(each), 5) for each in row) for row in replay.weights_over_time[kept])
    return WeightSeries(tuple(int(request) for request in replay.used_over_time[kept, 0]), LABELS, rows)


def _thinned(length: int) -> Ints:
    """Positions of at most ``_MAX_SAMPLES`` samples, including the first and the last."""
    return np.unique(np.linspace(0, max(0, length - 1), min(length, _MAX_SAMPLES)).astype(np.int64))


def run_bound(
    name: BoundName, trace: BlockTrace, model: CacheModel, unit: Unit, capacity: int, latency: LatencyModel
) -> BoundFigures:
    started = time.perf_counter()
    if name == "ceiling":
        found = infinite(trace, model=model)
    else:
        found = clairvoyant(trace, capacity=capacity, unit=unit, model=model)
    return BoundFigures(
        found.standing,
        trace.request_count,
        found.references,
        found.hit_blocks,
        found.prompt_tokens,
        found.hit_tokens,
        latency.ttft_sum_ms(trace.request_count, found.prompt_tokens - found.hit_tokens, found.hit_tokens, pairs=None),
        time.perf_counter() - started,
    )
