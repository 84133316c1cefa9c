"""A tracker over a real planner, and a tree that is a set of prefixes: the radix backend without an engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semblend.contract import Event, Namespace
from semblend.integration.core.refresh_on_repeat import RefreshOnRepeat
from semblend.integration.hints import Hints
from semblend.integration.sglang.donors import Donors
from semblend.integration.sglang.options import SglangOptions
from semblend.integration.sglang.planner_provider import PlannerProvider
from semblend.integration.sglang.request_tracker import Reach, RequestTracker, SglangRequest
from semblend.pipeline.planner import Planner
from semblend.plan.fidelity import OPEN as NO_GATE
from semblend.plan.fidelity import FidelityGate
from semblend.plan.gates import Gates
from semblend.plan.reuse_cost import ReuseCost
from semblend.settings import Settings

Tokens = NDArray[np.uint32]
NAMESPACE = Namespace(tenant=None, model="m")
OPEN = Gates(min_run_tokens=32, min_reuse_ratio=0.0)


def words(seed: int, length: int) -> Tokens:
    return np.random.default_rng(seed).integers(0, 50_000, length).astype(np.uint32)


@dataclass
class TrackerBench:
    """``tree`` maps a rid to the tokens the tree holds of it."""

    options: SglangOptions = field(default_factory=lambda: SglangOptions(gates=OPEN, refresh_on_repeat=False))
    page: int = 16
    max_step_tokens: int = 4096
    fidelity: FidelityGate = NO_GATE
    can_recompute: bool = False
    cost: ReuseCost | None = None
    tree: dict[str, Tokens] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        planner = Planner(settings=Settings(embedder="none"), gates=self.options.gates, budget_bytes=1 << 24)
        donors = Donors(planner, self.events.append, self.options.min_donor_tokens, self.page)
        sight = RefreshOnRepeat(self.options.gates.min_run_tokens) if self.options.refresh_on_repeat else None
        self.provider = PlannerProvider(planner, donors, None, sight)
        self.tracker = RequestTracker(
            self.provider,
            self.options,
            self.events.append,
            page_tokens=self.page,
            max_step_tokens=self.max_step_tokens,
            fidelity=self.fidelity,
            model="base",
            can_recompute=self.can_recompute,
            cost=self.cost,
        )

    def resident(self, _: str, donor: Tokens, needed: int) -> Reach:
        whole = min(-(-needed // self.page) * self.page, len(donor))
        best = 0
        for held in self.tree.values():
            length = min(whole, len(held))
            differing = np.flatnonzero(held[:length] != donor[:length])
            best = max(best, int(differing[0]) if len(differing) else length)
        return Reach(best // self.page * self.page)

    def ask(
        self,
        rid: str,
        tokens: Tokens,
        *,
        boundary: int = 0,
        limit: int | None = None,
        obstacle: str = "",
        hints: Hints | None = None,
        namespace: Namespace = NAMESPACE,
    ) -> int:
        record = self.tracker.open(rid, tokens, namespace, hints or Hints())
        assert record is not None
        last = len(tokens) - 1
        return self.tracker.claim(record, boundary, last if limit is None else limit, obstacle, self.resident)

    def record(self, rid: str) -> SglangRequest:
        record = self.tracker.known(rid)
        assert record is not None
        return record

    def serve_cold(self, rid: str, tokens: Tokens, namespace: Namespace = NAMESPACE) -> None:
        """A request the engine computes alone, checkpoints and releases."""
        assert self.ask(rid, tokens, hints=Hints(reuse=False), namespace=namespace) == 0
        self.tree[rid] = tokens[: len(tokens) // self.page * self.page]
        self.tracker.cached(rid, len(tokens), self.tracker.publishable(rid, len(tokens)))
        self.tracker.released(rid)

    def kinds(self, rid: str) -> list[str]:
        return [str(event.__struct_config__.tag) for event in self.events if getattr(event, "request_id", None) == rid]
