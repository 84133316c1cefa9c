"""A plan and the mock server -> records, all in simulated time: arrivals at the plan's pace, times with a queue."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from semantic_kv.collect.mock_server import MockServer
from semantic_kv.collect.plan import Step
from semantic_kv.collect.recorder import TraceRecorder
from semantic_kv.collect.request import OK, Served
from semantic_kv.latency.batching import batched_times
from sembase.latency import Engine


def run_mock(steps: Sequence[Step], server: MockServer, recorder: TraceRecorder, engine: Engine | None = None) -> int:
    """How many requests were recorded. Who is alone arrives after everybody before has surely ended."""
    looked_up = [server.look_up(step.request) for step in steps]
    prompt = np.array([prompt for prompt, _ in looked_up], dtype=np.int64)
    cached = np.array([cached for _, cached in looked_up], dtype=np.int64)
    output = np.array([step.request.max_tokens for step in steps], dtype=np.int64)
    alone = server.model.ttft_ms(prompt - cached, cached) + server.model.decode_ms(
        output, streams=float(len(steps) > 0)
    )
    arrival = _arrivals(steps, alone)
    times = batched_times(arrival, prompt - cached, cached, output, server.model, engine)
    for index, step in enumerate(steps):
        ttft = (times.first_token_ms[index] - arrival[index]) * server.jitter()
        decode = (times.finish_ms[index] - times.first_token_ms[index]) * server.jitter()
        ticket = recorder.begin(step.request, float(arrival[index]))
        served = Served(
            OK, ttft, ttft + decode, int(prompt[index]), int(cached[index]), int(output[index]), server.name
        )
        recorder.finish(ticket, served, pace=step.pace, mock=True)
    return recorder.written


def _arrivals(
    steps: Sequence[Step], alone_ms: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """As the collector would send them to a server that serves one request after the other."""
    arrival = np.zeros(len(steps))
    now, free_at = 0.0, 0.0
    typical = median(alone_ms.tolist()) if len(steps) else 0.0
    for index, step in enumerate(steps):
        if step.pace == "alone":
            now = max(now, free_at)
        elif step.pace == "paced":
            now += step.gap * typical
        arrival[index] = now
        free_at = max(free_at, now) + float(alone_ms[index])
    return arrival
