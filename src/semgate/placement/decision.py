"""The decision for one request: where it goes, on which evidence, and the score of every replica."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sembase.errors import SemBlendError

# exact_route: leading blocks, announced or remembered by their keys. semantic_placement: announced donors or remembered
# content, not verified. cold_route: neither (a session may still return to its last replica).
RoutePath = Literal["exact_route", "semantic_placement", "cold_route", "error_fallback"]


class NoUsableReplicaError(SemBlendError):
    """No replica can take the request; the message counts the replicas by state. Answer 503, never retry in a loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``scores_ms`` holds the best candidates, best first: predicted prefill saved minus queueing added.

    ``exact_blocks`` is what the chosen replica holds by announcement or routing history, ``donor_tokens`` what donors
    announced there cover beyond it, ``similarity`` that coverage as a fraction of the prompt (None without donor
    evidence). ``expected_tokens`` are the prefill tokens the policy expects to be reused; the rest is added load.
    ``own_evidence``: only the tenant's own requests decided, so that the tenant may see the route.
    A route, never a claim of reuse: only the engine knows what it reused.
    """

    replica: str
    path: RoutePath
    policy: str
    exact_blocks: int
    donor_tokens: int
    similarity: float | None
    scores_ms: tuple[tuple[str, float], ...]
    reason: str
    decide_us: float
    expected_tokens: int = 0
    own_evidence: bool = True
