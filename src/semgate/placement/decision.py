"""What a placement says of one request: where it goes, by which evidence, and what every replica was worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sembase.errors import SemBlendError

# exact_route: leading blocks, announced or remembered by their keys. semantic_placement: announced donors or remembered
# content, a belief. cold_route: neither (a session may still go home).
RoutePath = Literal["exact_route", "semantic_placement", "cold_route", "error_fallback"]


class NoUsableReplicaError(SemBlendError):
    """Nothing can take the request; the message counts the replicas by state. Answer 503, never retry in a loop."""


@dataclass(frozen=True, slots=True)
class Decision:
    """``scores_ms`` holds the best candidates, best first: predicted prefill saved minus queueing added.

    ``exact_blocks`` is what the chosen replica holds by announcement or routing history, ``donor_tokens`` what donors
    announced there cover beyond it, ``similarity`` that cover as a share of the prompt (None without donor evidence).
    ``expected_tokens`` is the prefill the policy expects to be spared there: what is left is the load it adds.
    ``own_evidence``: only the tenant's own requests decided, so that it may hear how.
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
