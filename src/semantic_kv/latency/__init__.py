"""Modelled latency: coefficients, queues and engine passes. A model of a server, never a measurement of one.

- ``LatencyModel``: coefficients -> modelled TTFT of requests alone on the server; ``attended_pairs``: its attention.
- ``fifo_queue``: arrivals and service times -> waits, for one server or N, first in, first out.
- ``batched_times``: the same for an engine with continuous batching (``Engine``: tokens per pass, slots).
- ``model_ttft``: a replay's hits -> modelled TTFT per request with its summary, alone or with a queue.
"""

from semantic_kv.latency.batching import BatchedTimes, batched_times
from semantic_kv.latency.estimate import ModelledTtft, model_ttft
from semantic_kv.latency.queue import QueueTimes, fifo_queue
from sembase.latency import Engine, LatencyModel, attended_pairs, latency_model_from_record

__all__ = [
    "BatchedTimes",
    "Engine",
    "LatencyModel",
    "ModelledTtft",
    "QueueTimes",
    "attended_pairs",
    "batched_times",
    "fifo_queue",
    "latency_model_from_record",
    "model_ttft",
]
