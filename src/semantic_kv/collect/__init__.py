"""Collect a trace for calibration from a server, real or mock. It only observes and never controls a cache.

For the command line (``kvmend simulate collect``) and notebooks:

- ``collect_from_server(CollectOptions(output=..., base_url=..., prompts=..., plan=PlanOptions(requests=...)),
  progress) -> CollectSummary``; ``progress`` is called with each ``Served``. Needs the extra ``live`` (httptools).
- ``collect_from_mock(CollectOptions(output=...))``: the same in simulated time, without a server.
- ``TraceRecorder(stream, key)`` with ``begin``/``finish`` records requests of your own handler.

The trace is ``semantic_kv.trace.v1`` JSON Lines, with keyed digests instead of text unless ``keep_text``.
"""

from semantic_kv.collect.commands import CollectOptions, collect_from_mock, collect_from_server, read_key
from semantic_kv.collect.mock import MockServer
from semantic_kv.collect.plan import PlanOptions, Step, plan_requests
from semantic_kv.collect.prompts import read_prompts
from semantic_kv.collect.recorder import TraceRecorder, observed_record
from semantic_kv.collect.request import PromptRequest, Served, Server
from semantic_kv.collect.run import Collection, CollectSummary

__all__ = [
    "CollectOptions",
    "CollectSummary",
    "Collection",
    "MockServer",
    "PlanOptions",
    "PromptRequest",
    "Served",
    "Server",
    "Step",
    "TraceRecorder",
    "collect_from_mock",
    "collect_from_server",
    "observed_record",
    "plan_requests",
    "read_key",
    "read_prompts",
]
