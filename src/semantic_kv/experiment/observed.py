"""A trace with observed TTFT in; observed and modelled TTFT per request under one policy, and the error, out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from semantic_kv.cache.result import CacheModel, Unit
from semantic_kv.experiment.config import PolicyChoice
from semantic_kv.simulate import simulate
from sembase.latency import LatencyModel
from sembase.trace.columns import BlockTrace

Floats = npt.NDArray[np.float64]
INVENTED: Final = "Made-up data: the trace says that its observed times come from a mock or are invented."


@dataclass(frozen=True, slots=True)
class ObservedComparison:
    """Only requests with an observed TTFT. ``hit_token_pairs`` counts those whose hit tokens were observed too."""

    policy: str
    model: CacheModel
    observed_ms: Floats
    modelled_ms: Floats
    observed_hit_tokens: int | None
    modelled_hit_tokens: int | None
    hit_token_pairs: int
    is_invented: bool

    @property
    def median_absolute_percentage_error(self) -> float:
        return float(np.median(np.abs(self.modelled_ms - self.observed_ms) / np.maximum(self.observed_ms, 1e-9)))


def compare_observed(
    trace: BlockTrace,
    choice: PolicyChoice,
    model: CacheModel,
    unit: Unit,
    capacity: int,
    latency: LatencyModel,
    *,
    is_invented: bool = False,
) -> ObservedComparison | None:
    """None if the trace has no observed TTFT."""
    seen = np.isfinite(trace.observed_ttft_ms)
    if not seen.any():
        return None
    replay = simulate(
        trace,
        capacity=capacity,
        admit=choice.admit,
        evict=choice.evict,
        model=model,
        unit=unit,
        options=choice.options(),
    )
    hit_tokens = replay.per_request_hit_tokens.astype(np.int64)
    modelled = latency.ttft_ms(trace.prompt_tokens() - hit_tokens, hit_tokens)
    both = seen & np.isfinite(trace.observed_hit_tokens)
    return ObservedComparison(
        choice.name,
        model,
        trace.observed_ttft_ms[seen].astype(np.float64),
        modelled[seen],
        int(trace.observed_hit_tokens[both].sum()) if both.any() else None,
        int(hit_tokens[both].sum()) if both.any() else None,
        int(both.sum()),
        is_invented,
    )
