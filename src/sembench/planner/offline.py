"""The semblend planner for the bench: deterministic, with long timeouts, and failing if its embedder cannot run.

Serving falls back to the token path alone. A benchmark must not: it would report that the embedder adds nothing
although the embedder never ran.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError
from sembench.planner import DonorPlanner, PlannerConfig
from sembench.planner.single_donor import SingleDonorPlanner
from semblend import Decline, Gates, Namespace, Planner, ReusePlan, Settings
from semblend.fingerprint.embed import build_embedder
from semblend.pipeline.semantic import SemanticFinder

# A limit, not a reservation. The default is meant for a scheduler; offline no donor may be evicted.
_BUDGET_BYTES: Final = 1 << 34
_TIMEOUT_S: Final = 600.0


class OfflinePlanner:
    def __init__(self, config: PlannerConfig) -> None:
        embedder = build_embedder(config.embedder)
        self._finder = SemanticFinder(embedder) if embedder is not None else None
        settings = replace(
            Settings(),
            embedder="none",
            min_similarity=config.min_similarity,
            fuzzy_chunks=config.fuzzy_chunks,
            strict_prefix_boundary=False,
            exact_materialization_only=config.exact_materialization_only,
        )
        self._planner = Planner(
            settings=settings,
            gates=Gates(min_run_tokens=config.min_run_tokens, min_reuse_ratio=config.min_reuse_ratio),
            budget_bytes=_BUDGET_BYTES,
            semantic_wait_s=_TIMEOUT_S,
            finder=self._finder,
        )

    def register(self, donor_id: str, ids: NDArray[np.int64], namespace: Namespace, text: str) -> None:
        self._planner.register(donor_id, ids, namespace, text if self._finder is not None else None)

    def forget(self, donor_id: str) -> None:
        self._planner.forget(donor_id)

    def plan(
        self, ids: NDArray[np.int64], namespace: Namespace, exact_prefix_tokens: int, text: str
    ) -> ReusePlan | Decline:
        return self._planner.plan(
            ids, namespace, exact_prefix_tokens=exact_prefix_tokens, text=text if self._finder is not None else None
        )

    def wait_until_indexed(self) -> None:
        if not self._planner.drain(_TIMEOUT_S):
            raise ConfigurationError(f"the embedder did not index the donors within {_TIMEOUT_S:.0f} s")
        if self._finder is not None and self._finder.last_error is not None:
            raise ConfigurationError(f"the embedder failed: {self._finder.last_error!r}")

    def close(self) -> None:
        self._planner.close()


def open_planner(config: PlannerConfig) -> DonorPlanner:
    planner = OfflinePlanner(config)
    return planner if config.multi_donor else SingleDonorPlanner(planner)
