"""Replicas without an engine: a planner, the engine's prefix cache and, between them, a directory and a store.

The rules are those of the vLLM adapter: the exact prefix first, a donor is fetched if the request reuses enough more
with it, a request that reuses nothing becomes a donor, a blended one does not. A blended request is taken to be
repaired before the next one: the prefix cache keeps it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tests.fakes.memory_directory import MemoryDirectory

from benchmarks.fleet.replay.streams import StreamRequest
from semblend import Namespace, Planner, ReusePlan, Settings
from semblend.fleet.donor_parts import used_parts
from semblend.fleet.keys import SpaceKeys
from semblend.fleet.suggestions import announce, suggest
from semblend.plan.gates import ADAPTER_GATES

Tokens = NDArray[np.uint32]
Writes = Literal["nothing", "prompts", "all", "computed"]
BLOCK = 16
MIN_DONOR_TOKENS = 128
MIN_GAIN_TOKENS = 128
NAMESPACE = Namespace(tenant="t", model="m")


@dataclass(slots=True)
class Totals:
    """Tokens. ``written`` are those of whole donors, ``fetched`` those of the pages that were read."""

    prompt: int = 0
    exact: int = 0
    reused: int = 0
    written: int = 0
    fetched: int = 0

    @property
    def share(self) -> float:
        return (self.exact + self.reused) / self.prompt if self.prompt else 0.0


@dataclass(slots=True)
class PrefixCache:
    """Without a bound. One per replica, or one for all: a shared exact-prefix tier."""

    _held: set[int] = field(default_factory=set)

    def take(self, tokens: Tokens) -> int:
        """The tokens it has, and keeps the rest."""
        chain, exact, is_hit = 0, 0, True
        for at in range(0, tokens.size - BLOCK + 1, BLOCK):
            chain = hash((chain, tokens[at : at + BLOCK].tobytes()))
            is_hit = is_hit and chain in self._held
            exact += BLOCK if is_hit else 0
            self._held.add(chain)
        return min(exact, (tokens.size - 1) // BLOCK * BLOCK)


class ReplayFleet:
    """``writes``: which donors reach the fleet; ``prompts``: blended requests as well, which the adapter never writes.

    ``shared_prefix``: whether all replicas have one prefix tier.
    """

    def __init__(self, replicas: int, writes: Writes, seed: int, *, shared_prefix: bool = False) -> None:
        self.totals = Totals()
        self._writes = writes
        self._random = random.Random(seed)
        settings = Settings(embedder="none")
        self._planners = [
            Planner(settings=settings, gates=ADAPTER_GATES, budget_bytes=1 << 28) for _ in range(replicas)
        ]
        self._judge = Planner(settings=settings, gates=ADAPTER_GATES, budget_bytes=1 << 26)
        one = PrefixCache()
        self._prefixes = [one if shared_prefix else PrefixCache() for _ in range(replicas)]
        self._own: list[set[str]] = [set() for _ in range(replicas)]
        self._homes: dict[str, int] = {}
        self._directory = MemoryDirectory(max_anchors=1 << 24, max_records=1 << 20)
        self._keys = SpaceKeys.derive(bytes(32), "replay")
        self._published: set[str] = set()

    def serve(self, request: StreamRequest) -> None:
        tokens, at = request.tokens, self._place(request)
        planner, totals = self._planners[at], self.totals
        exact = self._prefixes[at].take(tokens)
        if self._writes != "nothing":
            self._fetch(at, tokens, exact)
        plan = planner.plan(tokens, NAMESPACE, exact_prefix_tokens=exact)
        reused = plan.reused_tokens if isinstance(plan, ReusePlan) else 0
        totals.prompt += tokens.size
        totals.exact += exact
        totals.reused += reused
        if (reused and self._writes != "prompts") or tokens.size < MIN_DONOR_TOKENS:
            return
        donor_id = self._keys.donor_id(tokens)
        self._register(at, donor_id, tokens)
        is_mostly_computed = self._writes == "computed" and 2 * exact <= tokens.size
        is_wanted = self._writes in ("all", "prompts") or is_mostly_computed
        if is_wanted and donor_id not in self._published:
            self._published.add(donor_id)
            totals.written += tokens.size
            announce(self._directory, self._keys, donor_id, tokens)

    def _place(self, request: StreamRequest) -> int:
        if request.session is None:
            return self._random.randrange(len(self._planners))
        return self._homes.setdefault(request.session, self._random.randrange(len(self._planners)))

    def _fetch(self, at: int, tokens: Tokens, exact: int) -> None:
        """What ``RemoteDonors`` does, at once."""
        planner = self._planners[at]
        suggested = suggest(self._directory, self._keys, tokens, self._own[at].__contains__)
        if not suggested:
            return
        known = planner.plan(tokens, NAMESPACE, exact_prefix_tokens=exact)
        reusable, own = (known.reused_tokens, known.donor_ids) if isinstance(known, ReusePlan) else (0, ())
        candidates = {donor.donor_id: donor.tokens for donor in suggested}
        for donor_id in own:
            if (held := planner.tokens_of(donor_id)) is not None:
                candidates[donor_id] = held
        for donor_id, candidate in candidates.items():
            self._judge.register(donor_id, candidate, NAMESPACE)
        plan = self._judge.plan(tokens, NAMESPACE, exact_prefix_tokens=exact)
        for donor_id in candidates:
            self._judge.forget(donor_id)
        if not isinstance(plan, ReusePlan) or plan.reused_tokens - reusable < MIN_GAIN_TOKENS:
            return
        for part in used_parts(suggested, plan.runs):
            self.totals.fetched += sum(end - start for start, end in part.ranges) or part.tokens.size
            name = f"{part.donor.donor_id}{part.ranges or ''}"  # other parts of it may be fetched later
            self._register(at, name, part.tokens)

    def _register(self, at: int, donor_id: str, tokens: Tokens) -> None:
        if donor_id not in self._own[at]:
            self._own[at].add(donor_id)
            for evicted in self._planners[at].register(donor_id, tokens, NAMESPACE):
                self._own[at].discard(evicted)
