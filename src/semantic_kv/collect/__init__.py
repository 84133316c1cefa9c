"""A trace with observed times from a mock server, to try the tools without a real one (``kvmend proxy`` records those).

- ``collect_mock_trace(output, PlanOptions(requests=...))`` writes ``semantic_kv.trace.v1`` JSON Lines, with keyed
  digests instead of text unless ``keep_text``; every record is marked as mock.
- ``plan_requests(texts, PlanOptions(...))``: requests that a latency model can be fitted to, for your own sender.
"""

from semantic_kv.collect.mock import collect_mock_trace
from semantic_kv.collect.plan import PlanOptions, Step, plan_requests

__all__ = ["PlanOptions", "Step", "collect_mock_trace", "plan_requests"]
