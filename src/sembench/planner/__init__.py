"""The one door to the semblend planner. Everything else of the bench sees only this protocol and contract types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sembase.registry import Registry
from semblend.contract import Decline, Namespace, ReusePlan


@dataclass(frozen=True, slots=True)
class PlannerConfig:
    """What ``run-offline`` lets a user choose. ``kind`` names the planner; ours is ``semblend``."""

    embedder: str = "none"
    min_similarity: float = 0.0
    min_reuse_ratio: float = 0.25
    multi_donor: bool = True
    fuzzy_chunks: bool = False
    exact_materialization_only: bool = True
    min_run_tokens: int = 64
    kind: str = "semblend"


class DonorPlanner(Protocol):
    def register(self, donor_id: str, ids: NDArray[np.int64], namespace: Namespace, text: str) -> None: ...

    def forget(self, donor_id: str) -> None: ...

    def plan(
        self, ids: NDArray[np.int64], namespace: Namespace, exact_prefix_tokens: int, text: str
    ) -> ReusePlan | Decline: ...

    def settle(self) -> None:
        """Wait until everything registered can be found; offline figures must not depend on a race."""

    def close(self) -> None: ...


PLANNERS: Final[Registry[Callable[[PlannerConfig], DonorPlanner]]] = Registry("planner", group="sembench.planners")
PLANNERS.register("semblend", "sembench.planner.offline:open_planner")


def open_planner(config: PlannerConfig) -> DonorPlanner:
    return PLANNERS.get(config.kind)(config)
