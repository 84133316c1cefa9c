"""Donors spread over several planners that know of each other through the directory alone, as replicas do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from benchmarks.discovery.library import Library
from benchmarks.discovery.tenants import ALPHA
from semblend import Decline, Gates, Namespace, Planner, ReusePlan, Settings
from semblend.fleet.directory.base import Directory
from semblend.fleet.keys import SpaceKeys
from semblend.fleet.suggestions import announce, suggest

Tokens = NDArray[np.uint32]
BUDGET_BYTES = 1 << 30


def open_planner() -> Planner:
    """All gates open: the plan contains everything the planner found."""
    gates = Gates(min_run_tokens=64, min_reuse_ratio=0.0, boundary_recompute_tokens=0, max_context_share=1.0)
    return Planner(settings=Settings(embedder="none"), gates=gates, budget_bytes=BUDGET_BYTES)


class SpreadPlanner:
    """Plans like a planner. Each request goes to the next of ``count`` planners, each of which has its own donors.

    What the directory suggests is registered for the plan and forgotten afterwards: the next request of the same
    planner depends on the directory again. ``donors`` are the donors' tokens by their id in the fleet.
    """

    def __init__(self, directory: Directory, keys: SpaceKeys, library: Library, count: int) -> None:
        self._directory = directory
        self._keys = keys
        self._planners = [open_planner() for _ in range(count)]
        self._own: list[set[str]] = [set() for _ in range(count)]
        self._turns = cycle(range(count))
        self.donors: dict[str, Tokens] = {}
        self.suggest_ms: list[float] = []
        for number, donor in enumerate(library.donors):
            donor_id = keys.donor_id(donor.tokens)
            if donor_id not in self.donors:
                self.donors[donor_id] = donor.tokens
                self._own[number % count].add(donor_id)
                self._planners[number % count].register(donor_id, donor.tokens, ALPHA)
                announce(directory, keys, donor_id, donor.tokens)

    def plan(
        self, tokens: Tokens | Sequence[int], namespace: Namespace, *, exact_prefix_tokens: int = 0
    ) -> ReusePlan | Decline:
        at = next(self._turns)
        planner, own = self._planners[at], self._own[at]
        started = time.perf_counter()
        suggested = suggest(self._directory, self._keys, np.asarray(tokens, np.uint32), own.__contains__)
        self.suggest_ms.append((time.perf_counter() - started) * 1e3)
        for donor in suggested:
            planner.register(donor.donor_id, donor.tokens, namespace)
        try:
            return planner.plan(tokens, namespace, exact_prefix_tokens=exact_prefix_tokens)
        finally:
            for donor in suggested:
                planner.forget(donor.donor_id)
