"""The third axis: what a request may reuse beyond its exact prefix, and whether that becomes exact afterwards.

``prefix``        only the exact prefix, as engines do
``blend``         also blocks of equal content after another prefix. A request that does (a blended one) has private
                  blocks, which leave with it; it is not a donor
``blend_idle``    and its blocks are repaired while the engine is idle
``blend_likely``  and only if its session is likely to come back; then also in a few of the busy steps

The constants are those of the vLLM adapter (ADR 0015). A donor is a prompt whose KV was computed exactly, by a request
that reused nothing beyond its prefix or by a repair; the donor store is taken to hold all of them. A block that was
exact once and has been evicted since is an ordinary miss: serving it from the donor store would be offloading.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from sembase.latency import LatencyModel

ReuseName = Literal["prefix", "blend", "blend_idle", "blend_likely"]
REUSE: Final[tuple[ReuseName, ...]] = ("prefix", "blend", "blend_idle", "blend_likely")

SLICE_TOKENS: Final = 128  # repaired in one step
BUSY_STEPS_PER_SLICE: Final = 256
MAX_JOBS: Final = 64
MAX_HELD_FRACTION: Final = 0.5  # of the capacity
MIN_LIKELIHOOD: Final = 0.25
RETURN_WINDOW_MS: Final = 600_000.0
MAX_OPEN: Final = 8_192  # answers whose session may come back
PRIOR_WEIGHT: Final = 20.0
# Fraction of sessions that return, before anything is counted: unknown, stop, tool call, length, abort.
PRIORS: Final = (0.3, 0.85, 0.85, 0.5, 0.05)


@dataclass(frozen=True, slots=True)
class Reuse:
    """``latency`` says how long the engine computes, and so when it is idle. Decoding takes time only where the model
    prices steps. The gates are those of the adapters; ``boundary_recompute_tokens`` are computed at the head of a run.
    """

    name: ReuseName = "prefix"
    latency: LatencyModel = field(default_factory=LatencyModel)
    min_run_tokens: int = 64
    min_reuse_ratio: float = 0.1
    min_inexact_tokens: int = 768
    boundary_recompute_tokens: int = 64

    @property
    def is_beyond_prefix(self) -> bool:
        return self.name != "prefix"
