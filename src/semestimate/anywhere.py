"""What reuse at any position adds to the prefix: runs in, plans by class out, found at all and served by default gates.

The runs come from ``sembase.trace.reuse_counter``; composition, context risk, gates and classes are the planner's own.
Every earlier prompt of the tenant is a donor and no donor is evicted, so "served" is what the default gates pass, not
what a small donor store still holds: ``curve`` says how much memory it takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel
from sembase.trace.reuse_counter import RequestReuse
from semblend.contract import Decline, PlanShape, ReusePlan, shape_of
from semblend.plan.choose import choose
from semblend.plan.compose import DONOR, LENGTH
from semblend.plan.gates import ADAPTER_GATES, Gates, Prompt
from semblend.plan.selection import default_recompute_fraction, is_question
from semestimate.work import Work

ANY_RUN: Final = Gates(min_reuse_ratio=0.0)  # every run of at least 64 tokens, whatever its context
_MAX_STEPS: Final = 4096


@dataclass(slots=True)
class Saved:
    """Requests with a plan and the prefill that their reused tokens need without it.

    ``recomputed`` is the part of that work that default settings do again, to keep answers close in short prompts.
    """

    requests: int = 0
    work: Work = field(default_factory=Work)
    recomputed: Work = field(default_factory=Work)

    def add(self, work: Work, recomputed_share: float) -> None:
        self.requests += 1
        self.work += work
        if recomputed_share:
            self.recomputed += work.part(int(recomputed_share * work.tokens))


@dataclass(slots=True)
class Anywhere:
    """``found`` and ``served`` by the class of all runs found in a request, even where gates leave fewer of them.

    ``declined`` counts requests of which runs were found but none is served.
    """

    found: dict[PlanShape, Saved] = field(default_factory=dict)
    served: dict[PlanShape, Saved] = field(default_factory=dict)
    declined: dict[str, int] = field(default_factory=dict)

    def found_work(self) -> Work:
        return sum((each.work for each in self.found.values()), Work())

    def served_work(self) -> Work:
        return sum((each.work for each in self.served.values()), Work())


@dataclass(frozen=True, slots=True)
class Planned:
    """Tokens found and served in one request, and the donor with the most of them."""

    found_tokens: int = 0
    served_tokens: int = 0
    donor: int | None = None


class AnywhereCounter:
    def __init__(self, gates: Gates = ADAPTER_GATES) -> None:
        self.total = Anywhere()
        self._gates = gates
        self._parents = np.full(1 << 10, -1, np.int32)
        self._shared = np.zeros(1 << 10, np.int32)

    def add(self, reuse: RequestReuse) -> Planned:
        self._remember_parent(reuse)
        if not len(reuse.runs) or reuse.prefix_tokens >= reuse.prompt_tokens - 1:  # an engine computes the last token
            return Planned()
        named = reuse.runs[:, DONOR].tolist()
        donors = sorted(set(named))
        local = {donor: at for at, donor in enumerate(donors)}
        rows = reuse.runs.copy()
        rows[:, DONOR] = [local[donor] for donor in named]
        shared = [min(reuse.prefix_tokens, self._shared_prefix(reuse.number, each)) for each in donors]
        prompt = Prompt(reuse.prompt_tokens, reuse.prefix_tokens)
        names = list(map(str, donors))
        anywhere = choose(prompt, rows, shared, names, ANY_RUN)
        if not len(anywhere.pieces):
            return Planned()
        missed = Work.between(reuse.prefix_tokens, reuse.prompt_tokens)
        found = anywhere.answer
        assert isinstance(found, ReusePlan), "each piece is a run that the gates of ANY_RUN allow"
        shape = shape_of(found.runs)
        _count(found, self.total.found, shape, missed)
        answer: ReusePlan | Decline | None = None
        if reuse.prompt_tokens >= self._gates.min_prompt_tokens:
            answer = choose(prompt, rows, shared, names, self._gates).answer
        if isinstance(answer, ReusePlan):
            _count(answer, self.total.served, shape, missed)
        elif answer is not None:
            self.total.declined[answer.reason.value] = self.total.declined.get(answer.reason.value, 0) + 1
        served = answer.reused_tokens if isinstance(answer, ReusePlan) else 0
        weights = np.bincount(anywhere.pieces[:, DONOR], anywhere.pieces[:, LENGTH])
        return Planned(found.reused_tokens, served, donors[int(weights.argmax())])

    def _remember_parent(self, reuse: RequestReuse) -> None:
        if reuse.number >= len(self._parents):
            self._parents = np.concatenate([self._parents, np.full_like(self._parents, -1)])
            self._shared = np.concatenate([self._shared, np.zeros_like(self._shared)])
        self._parents[reuse.number] = -1 if reuse.prefix_donor is None else reuse.prefix_donor
        self._shared[reuse.number] = reuse.prefix_tokens

    def _shared_prefix(self, number: int, donor: int) -> int:
        return int(_common_prefix(self._parents, self._shared, number, donor, _MAX_STEPS))


def _count(plan: ReusePlan, by_shape: dict[PlanShape, Saved], shape: PlanShape, missed: Work) -> None:
    share = default_recompute_fraction(plan.runs) if is_question(plan.prompt_tokens - plan.claim_end) else 0.0
    by_shape.setdefault(shape, Saved()).add(missed.part(plan.reused_tokens), share)


@kernel
def _common_prefix(
    parents: NDArray[np.int32], shared: NDArray[np.int32], first: int, second: int, max_steps: int
) -> int:
    """Tokens that two requests share from the start: the least prefix on their ways to a common ancestor.

    A request's parent is an earlier one that shares the longest prefix with it.
    """
    tokens = 1 << 30
    for _ in range(max_steps):
        if first == second:
            return tokens
        if first < second:
            first, second = second, first
        tokens = min(tokens, int(shared[first]))
        first = int(parents[first])
        if first < 0 or tokens == 0:
            return 0
    return 0
