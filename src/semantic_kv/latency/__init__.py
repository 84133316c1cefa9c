"""Modelled latency: coefficients, queues, engine passes and tiers. A model of a server, never a measurement of one.

- ``LatencyModel``: coefficients -> modelled TTFT of requests alone on the server; ``attended_pairs``: its attention.
- ``fifo_queue``: arrivals and service times -> waits, for one server or N, first in, first out.
- ``batched_times``: the same for an engine with continuous batching (``Engine``: tokens per pass, slots).
- ``Tier``, ``load_ms``, ``tiered_replay``: what lower tiers hold, and what a hit in them costs.
- ``model_ttft``: a replay's hits -> modelled TTFT per request with its summary, alone or with a queue.
"""

from semantic_kv.latency.batching import BatchedTimes, batched_times
from semantic_kv.latency.estimate import ModelledTtft, model_ttft
from semantic_kv.latency.queue import QueueTimes, fifo_queue
from semantic_kv.latency.tiered import TieredReplay, tiered_replay
from semantic_kv.latency.tiers import Tier, cheaper_to_load, load_ms
from sembase.latency import Engine, LatencyModel, attended_pairs, latency_model_from_record

__all__ = [
    "BatchedTimes",
    "Engine",
    "LatencyModel",
    "ModelledTtft",
    "QueueTimes",
    "Tier",
    "TieredReplay",
    "attended_pairs",
    "batched_times",
    "cheaper_to_load",
    "fifo_queue",
    "latency_model_from_record",
    "load_ms",
    "model_ttft",
    "tiered_replay",
]
