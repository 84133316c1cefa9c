"""The only access to the semblend planner. The rest of the bench uses this protocol and contract types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sembase.registry import Registry
from semblend.contract import Decline, Namespace, ReusePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerConfig:
    """Planner options of ``run-offline``. ``kind`` names the planner; the built-in one is ``semblend``."""

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

    def wait_until_indexed(self) -> None:
        """Waits until all registered donors can be found, so that offline figures do not depend on timing."""

    def close(self) -> None: ...


PLANNERS: Final[Registry[Callable[[PlannerConfig], DonorPlanner]]] = Registry("planner", group="sembench.planners")
PLANNERS.register("semblend", "sembench.planner.offline:open_planner")


def open_planner(config: PlannerConfig) -> DonorPlanner:
    return PLANNERS.get(config.kind)(config)
