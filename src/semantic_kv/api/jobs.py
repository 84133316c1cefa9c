"""Bounded simulations for the service: a small trace from the client, or a built-in workload, under a few policies."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
from starlette.exceptions import HTTPException

from semantic_kv.api.schemas import ExperimentIn, FiguresOut, PolicyFigures, PolicyIn, SimulateTraceIn
from semantic_kv.api.settings import Limits
from semantic_kv.cache.result import CacheModel, Replay, Unit
from semantic_kv.latency.estimate import model_ttft
from semantic_kv.simulate import simulate
from semantic_kv.workload import BASIC, STRESS, make_workload
from sembase.errors import ContractError
from sembase.latency import LatencyModel
from sembase.trace.build import build_trace, in_time_order
from sembase.trace.columns import BlockTrace
from sembase.trace.record import parse_record

EXPERIMENTS: Final = (*STRESS, *BASIC)
# Below this many references the plain-Python simulator gives the same result sooner: it compiles nothing.
_REFERENCE_BELOW: Final = 2_500
_DEFAULT_POLICIES: Final = (
    PolicyIn(evict="lru"),
    PolicyIn(evict="fifo"),
    PolicyIn(evict="lfu"),
    PolicyIn(evict="adaptive_semantic"),
    PolicyIn(evict="lru", admit="not_user_when_full"),
)


class Jobs:
    """Runs at most ``limits.jobs`` simulations at a time. Further requests get 503 with retry-after; none is queued."""

    def __init__(self, limits: Limits, latency: LatencyModel) -> None:
        self._limits = limits
        self._latency = latency
        self._slots = threading.BoundedSemaphore(limits.jobs)

    def simulate_trace(self, asked: SimulateTraceIn) -> FiguresOut:
        limits = self._limits
        blocks = sum(len(request.blocks) for request in asked.requests)
        if len(asked.requests) > limits.trace_requests or blocks > limits.trace_blocks:
            raise ContractError(
                f"the trace has {len(asked.requests):,} requests and {blocks:,} blocks; the service simulates at most "
                f"{limits.trace_requests:,} and {limits.trace_blocks:,}. Use kvmend simulate replay"
            )
        with self._slot():
            records = (
                parse_record(request.model_dump(exclude_none=True), f"request {number}")
                for number, request in enumerate(asked.requests)
            )
            trace = build_trace(in_time_order(records, "trace"), "trace")
            return self._compare(trace, asked.policies, asked.model, asked.capacity, asked.unit)

    def run_experiment(self, asked: ExperimentIn) -> FiguresOut:
        if asked.name not in EXPERIMENTS:
            raise HTTPException(404, f"no built-in experiment '{asked.name}'; known: {', '.join(EXPERIMENTS)}")
        with self._slot():
            made = make_workload(asked.name, seed=asked.seed)
            policies = asked.policies or _DEFAULT_POLICIES
            return self._compare(made.trace, policies, asked.model, made.capacity_tokens, "tokens")

    def _compare(
        self, trace: BlockTrace, policies: Sequence[PolicyIn], model: CacheModel, capacity: int, unit: Unit
    ) -> FiguresOut:
        if len(policies) > self._limits.policies:
            raise ContractError(f"at most {self._limits.policies} policies can be compared in one request")
        figures = []
        for policy in policies:
            replay = simulate(
                trace,
                capacity=capacity,
                admit=policy.admit,
                evict=policy.evict,
                model=model,
                unit=unit,
                reference=trace.reference_count < _REFERENCE_BELOW,
            )
            figures.append(self._figures(trace, replay))
        figures.sort(key=lambda each: each.modelled_ttft_mean_ms)
        return FiguresOut(
            trace=trace.name,
            requests=trace.request_count,
            capacity=capacity,
            unit=unit,
            verdict=_verdict(figures),
            policies=figures,
        )

    def _figures(self, trace: BlockTrace, replay: Replay) -> PolicyFigures:
        modelled = model_ttft(trace, replay.per_request_hit_tokens, self._latency)
        return PolicyFigures(
            evict=replay.evict,
            admit=replay.admit,
            model=replay.model,
            references=replay.references,
            hit_blocks=replay.hit_blocks,
            hit_ratio=replay.hit_blocks / replay.references,
            prompt_tokens=replay.prompt_tokens,
            hit_tokens=replay.hit_tokens,
            admitted=replay.admitted,
            refused=replay.refused,
            evicted=replay.evicted,
            modelled_ttft_mean_ms=float(np.mean(modelled.ttft_ms)),
            modelled_ttft_p95_ms=float(np.quantile(modelled.ttft_ms, 0.95)),
        )

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._slots.acquire(blocking=False):
            raise HTTPException(503, "busy; retry later", {"retry-after": "5"})
        try:
            yield
        finally:
            self._slots.release()


def _verdict(figures: Sequence[PolicyFigures]) -> str:
    best = figures[0]
    lru = next((each for each in figures if (each.evict, each.admit) == ("lru", "always")), None)
    if lru is None:
        return f"{_name(best)} has the lowest modelled TTFT; LRU was not requested"
    if lru.modelled_ttft_mean_ms <= best.modelled_ttft_mean_ms:
        return "LRU wins: no requested policy has a lower modelled TTFT"
    gain = 1.0 - best.modelled_ttft_mean_ms / lru.modelled_ttft_mean_ms
    return f"{_name(best)} has a modelled TTFT {gain:.1%} below LRU's"


def _name(figures: PolicyFigures) -> str:
    return figures.evict if figures.admit == "always" else f"{figures.evict}+{figures.admit}"
