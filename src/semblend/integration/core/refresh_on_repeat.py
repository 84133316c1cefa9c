"""Refresh on repeat: passages that first appeared in a blended request get a donor when they repeat.

KV computed after blended KV is itself approximate and is not stored, so reuse would decay. Passages without an isolated
prefill are kept as tokens in a small index; the next request that repeats them is served cold, once, and becomes their
donor.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import Namespace, ReusePlan, TokenRange
from semblend.pipeline.planner import Planner
from semblend.plan.gates import Gates
from semblend.settings import Settings

MEMORY_BYTES: Final = 32 << 20
# Maximum fraction of the blendable requests that is served cold for the benefit of later ones.
MAX_COLD_FRACTION: Final = 0.25


class RefreshOnRepeat:
    """Passages seen only in blended requests, and how many requests were served cold for them."""

    def __init__(self, min_run_tokens: int, memory_bytes: int = MEMORY_BYTES) -> None:
        self._min_tokens = min_run_tokens
        self._memory_bytes = memory_bytes
        self._seen = self._empty()
        self._serial = 0
        self._blendable = 0
        self._served_cold = 0

    def __len__(self) -> int:
        return len(self._seen)

    def due(self, tokens: NDArray[np.uint32], namespace: Namespace, plan: ReusePlan) -> tuple[str, ...]:
        """The remembered passages that justify serving this request cold; none when it should be blended."""
        if not len(self._seen) or self._served_cold >= MAX_COLD_FRACTION * (self._blendable + 1):
            return ()
        again = self._seen.plan(tokens, namespace, plan.exact_prefix_tokens)
        if not isinstance(again, ReusePlan):
            return ()
        fresh = sum(_outside(run.target_start, run.target_end, plan) for run in again.runs)
        # Give up reuse only for more tokens than it saves now.
        return again.donor_ids if fresh >= max(self._min_tokens, plan.reused_tokens) else ()

    def served(self, passages: tuple[str, ...]) -> None:
        """A blendable request was served: blended, or cold because of ``passages``."""
        self._blendable += 1
        self._served_cold += bool(passages)
        for passage in passages:
            self._seen.forget(passage)

    def remember(self, tokens: NDArray[np.uint32], namespace: Namespace, novel: list[TokenRange]) -> None:
        """Keep the tokens of the passages that a blended request computed after loaded KV."""
        for stretch in novel:
            self._seen.register(f"seen-{self._serial}", tokens[stretch.start : stretch.end], namespace)
            self._serial += 1

    def clear(self) -> None:
        self._seen = self._empty()

    def _empty(self) -> Planner:
        gates = Gates(min_run_tokens=self._min_tokens, min_reuse_ratio=0.0)
        settings = Settings(embedder="none", strict_prefix_boundary=False)
        return Planner(settings=settings, gates=gates, budget_bytes=self._memory_bytes)


def novel_stretches(plan: ReusePlan, exact: int) -> list[TokenRange]:
    """The passages a request computes after its first inexact run, its tail included; ``exact`` tokens are exact."""
    stretches = []
    position = None
    for run in plan.runs:
        if position is not None and run.target_start > position:
            stretches.append(TokenRange(position, run.target_start))
        position = run.target_end if run.target_start >= exact else None
    if position is not None and plan.prompt_tokens > position:
        stretches.append(TokenRange(position, plan.prompt_tokens))
    return stretches


def _outside(start: int, end: int, plan: ReusePlan) -> int:
    """Tokens of ``[start, end)`` that the plan does not load."""
    inside = sum(max(0, min(end, run.target_end) - max(start, run.target_start)) for run in plan.runs)
    return end - start - inside
