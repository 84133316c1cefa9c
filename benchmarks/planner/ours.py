"""Our planner as a subject. Run as a module it serves the worker protocol; ``--lists`` feeds it Python lists."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.planner.subject import FoundRun
from benchmarks.planner.tokens import Tokens
from benchmarks.planner.worker import serve
from semblend import Gates, Namespace, Planner, ReusePlan, Settings

MIN_RUN_TOKENS = 64
BUDGET_BYTES_PER_DONOR = 15_000  # a little above the target, so that nothing is evicted if it is met
NAMESPACE = Namespace(tenant="benchmark", model="benchmark")


class OurPlanner:
    """Token path alone, gates open, so that finding and verifying are timed."""

    def __init__(self, feed_lists: bool = False) -> None:
        self._feed_lists = feed_lists
        self._planner: Planner | None = None

    def open(self, donor_count: int) -> None:
        Planner.warm_up()  # on a planner of its own: neither time nor memory of the compiler is counted
        self._planner = _new_planner(max(64 << 20, donor_count * BUDGET_BYTES_PER_DONOR))

    def native_donor(self, number: int, tokens: Tokens) -> Any:
        return tokens.tolist() if self._feed_lists else tokens

    def register(self, number: int, native: Any) -> None:
        assert self._planner is not None
        self._planner.register(str(number), native, NAMESPACE)

    def native_prompt(self, tokens: Tokens) -> Any:
        return tokens.tolist() if self._feed_lists else tokens

    def lookup(self, native: Any) -> Any:
        assert self._planner is not None
        return self._planner.plan(native, NAMESPACE)

    def found_runs(self, answer: Any) -> list[FoundRun]:
        if not isinstance(answer, ReusePlan):
            return []
        return [FoundRun(int(run.donor_id), run.donor_start, run.target_start, run.length) for run in answer.runs]

    def accounted_bytes(self) -> int | None:
        assert self._planner is not None
        return self._planner.memory_bytes()


def _new_planner(budget_bytes: int) -> Planner:
    gates = Gates(min_run_tokens=MIN_RUN_TOKENS, min_reuse_ratio=0.0)
    return Planner(settings=Settings(embedder="none"), gates=gates, budget_bytes=budget_bytes)


if __name__ == "__main__":
    serve(OurPlanner(feed_lists="--lists" in sys.argv[1:]))
