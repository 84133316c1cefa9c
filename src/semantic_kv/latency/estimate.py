"""A trace and the hit tokens of a replay in, modelled TTFT of every request and its summary out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from semantic_kv.latency.batching import batched_times
from semantic_kv.latency.queue import fifo_queue
from sembase.errors import ContractError
from sembase.latency import Engine, Floats, LatencyModel, Numbers
from sembase.trace.columns import BlockTrace

Queueing = Literal["alone", "fifo", "engine"]


@dataclass(frozen=True, slots=True)
class ModelledTtft:
    """``wait_ms`` is the time added by other requests: TTFT in the queue minus TTFT alone."""

    queueing: Queueing
    ttft_ms: Floats
    wait_ms: Floats
    uncached_tokens: int
    prompt_tokens: int

    @property
    def mean_ms(self) -> float | None:
        """None for a trace without requests."""
        return float(self.ttft_ms.mean()) if self.ttft_ms.size else None

    def quantile_ms(self, fraction: float) -> float | None:
        return float(np.quantile(self.ttft_ms, fraction)) if self.ttft_ms.size else None


def model_ttft(
    trace: BlockTrace,
    hit_tokens: Numbers,
    model: LatencyModel,
    *,
    queueing: Queueing = "alone",
    engine: Engine | None = None,
    servers: int = 1,
    unknown_output_tokens: int = 1,
) -> ModelledTtft:
    """``hit_tokens`` per request (``Replay.per_request_hit_tokens``).

    ``fifo``: ``servers`` that each serve one request to its last token. ``engine``: continuous batching. Requests of
    unknown output length decode ``unknown_output_tokens``.
    """
    prompt = trace.prompt_tokens()
    hit = np.asarray(hit_tokens, dtype=np.int64)
    if hit.shape != prompt.shape or (hit > prompt).any() or (hit < 0).any():
        raise ContractError(
            f"trace '{trace.name}': hit tokens must be one number per request, between 0 and its prompt tokens"
        )
    uncached = prompt - hit
    alone = model.ttft_ms(uncached, hit)
    output = np.where(trace.output_tokens < 0, unknown_output_tokens, trace.output_tokens).astype(np.int64)
    if queueing == "alone":
        ttft = alone
    elif queueing == "fifo":
        times = fifo_queue(
            trace.arrival_ms, alone - model.base_ms, model.decode_ms(output), lanes=servers, slots=servers
        )
        ttft = alone + times.wait_ms
    else:
        batched = batched_times(trace.arrival_ms, uncached, hit, output, model, engine)
        ttft = batched.first_token_ms - trace.arrival_ms
    return ModelledTtft(queueing, ttft, ttft - alone, int(uncached.sum()), int(prompt.sum()))
