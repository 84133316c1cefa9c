"""Which of several donors of one text a plan takes: laws, and a brute-force oracle over all choices."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from semblend import Decline, Gates, Namespace, Planner, ReusePlan, Settings
from semblend.align.runs import equal_runs
from semblend.plan.choose import choose, worth
from semblend.plan.compose import COLUMNS
from semblend.plan.gates import ADAPTER_GATES, Prompt, decide, reused_parts
from semblend.plan.risk import context_risks, in_context

NS = Namespace(tenant="a", model="m")
SMALL = Gates(
    min_run_tokens=8,
    min_fragment_tokens=1,
    min_inexact_tokens=24,
    boundary_recompute_tokens=2,
    max_context_share=0.35,
)
MAX_RUNS = 6  # every set of them is tried
Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """A prompt of passages, and donors that hold some of them behind other heads."""

    recipient: Tokens
    donors: list[Tokens]
    floor: int

    def rows(self, count: int) -> NDArray[np.int64]:
        """The maximal runs of the first ``count`` donors."""
        found = [equal_runs(donor, self.recipient, SMALL.min_run_tokens) for donor in self.donors[:count]]
        return np.concatenate(
            [np.column_stack([np.full(len(runs), number), runs]) for number, runs in enumerate(found)]
            or [np.empty((0, 4), np.int64)]
        )

    def answer(self, count: int) -> ReusePlan | Decline:
        return choose(self.prompt, self.rows(count), self.shared(count), self.names, SMALL).answer

    @property
    def prompt(self) -> Prompt:
        return Prompt(len(self.recipient), self.floor)

    @property
    def names(self) -> list[str]:
        return [str(number) for number in range(len(self.donors))]

    def shared(self, count: int) -> list[int]:
        return [min(self.floor, common_prefix(donor, self.recipient)) for donor in self.donors[:count]]


def common_prefix(one: Tokens, other: Tokens) -> int:
    size = min(len(one), len(other))
    differing = np.flatnonzero(one[:size] != other[:size])
    return int(differing[0]) if len(differing) else size


def make_case(seed: int, donors: int) -> Case:
    rng = random.Random(seed)
    fresh = itertools.count(1)

    def text(length: int) -> list[int]:
        return [next(fresh) for _ in range(length)]

    heads = [text(rng.randrange(8, 60)) for _ in range(3)]
    passages = [text(rng.randrange(10, 60)) for _ in range(4)]

    def prompt() -> Tokens:
        parts = [rng.choice(heads)] if rng.random() < 0.8 else [text(rng.randrange(1, 30))]
        for passage in rng.sample(passages, rng.randrange(1, 4)):
            if rng.random() < 0.4:
                parts.append(text(rng.randrange(1, 12)))
            cut = rng.randrange(len(passage)) if rng.random() < 0.2 else 0
            parts.append(passage[cut:])
        return np.array([*itertools.chain(*parts), *text(rng.randrange(1, 8))], np.int64)

    recipient = prompt()
    others = [prompt() for _ in range(donors)]
    floor = max((common_prefix(other, recipient) for other in others), default=0) // 4 * 4
    return Case(recipient, others, min(floor, len(recipient) - 2))


def brute_force(case: Case) -> float:
    """The most that the gates serve of any set of runs, with every position they cover taken by any that does."""
    count = len(case.donors)
    rows, limit = case.rows(count), len(case.recipient) - 1
    table = in_context(rows, case.shared(count)).tolist()
    edges = sorted({case.floor, limit, *rows[:, 2].tolist(), *(rows[:, 2] + rows[:, 3]).tolist()})
    spans = list(itertools.pairwise(edge for edge in edges if case.floor <= edge <= limit))
    best = 0.0
    for size in range(1, len(table) + 1):
        for runs in itertools.combinations(table, size):
            options = [[r for r in runs if r[2] <= begin and end <= r[2] + r[3]] or [None] for begin, end in spans]
            best = max(best, *(served(case, pieces_of(spans, picks)) for picks in itertools.product(*options)))
    return best


def pieces_of(spans: list[tuple[int, int]], picks: tuple[list[int] | None, ...]) -> list[list[int]]:
    pieces: list[list[int]] = []
    open_run: list[int] | None = None
    for (begin, end), run in zip(spans, picks, strict=True):
        if run is not None and run is open_run:
            pieces[-1][3] += end - begin
        elif run is not None:
            donor, donor_start, target_start, _, differing = run
            pieces.append([donor, donor_start + begin - target_start, begin, end - begin, differing])
        open_run = run
    return pieces


def served(case: Case, pieces: list[list[int]]) -> float:
    """A refused run belongs to no choice: sets without it are tried as well."""
    array = np.array(pieces, np.int64).reshape(-1, COLUMNS)
    risks = context_risks(array)
    if not all(SMALL.allows(run) for run in reused_parts(array, risks, case.names, SMALL) if run is not None):
        return 0.0
    return worth(decide(case.prompt, array, risks, case.names, SMALL, strict_prefix_boundary=True))


def test_the_choice_reaches_ninety_nine_percent_of_all_choices() -> None:
    reached = possible = 0.0
    judged = 0
    for seed in range(300):
        case = make_case(seed, 1 + seed % 4)
        if len(case.rows(len(case.donors))) > MAX_RUNS:
            continue
        judged += 1
        best = brute_force(case)
        ours = max(0.0, worth(case.answer(len(case.donors))))
        possible += best
        reached += min(ours, best)
    assert judged >= 200
    assert reached >= 0.99 * possible


def test_one_more_donor_lowers_no_plan() -> None:
    for seed in range(1000):
        case = make_case(seed, 6)
        worths = [worth(case.answer(count)) for count in range(1, 7)]
        assert all(before <= after + 1e-6 for before, after in itertools.pairwise(worths)), seed


def text(rng: np.random.Generator, length: int) -> NDArray[np.uint32]:
    return rng.integers(1_000, 49_000, length).astype(np.uint32)


@pytest.mark.parametrize("donors", [2, 8, 50])
def test_of_any_number_of_donors_of_a_document_the_one_with_the_same_head_is_taken(donors: int) -> None:
    """Each user has a head, and asks something else before the same document: the engine's prefix hit is the head."""
    rng = np.random.default_rng(donors)
    document = text(rng, 1_470)
    heads = [text(rng, int(rng.integers(600, 1_800))) for _ in range(donors)]
    with Planner(settings=Settings(embedder="none"), gates=ADAPTER_GATES, budget_bytes=1 << 26) as planner:
        for number, head in enumerate(heads):
            planner.register(str(number), np.concatenate([head, text(rng, 32), document]), NS)
        for number, head in enumerate(heads):
            prompt = np.concatenate([head, text(rng, 32), document])
            plan = planner.plan(prompt, NS, exact_prefix_tokens=len(head))
            assert isinstance(plan, ReusePlan), plan
            assert {run.donor_id for run in plan.runs} == {str(number)}
            assert plan.reused_tokens > 1_400


def test_a_forgotten_head_is_replaced_by_the_next_nearest() -> None:
    """A hundred donors of one document share a short head; two share a longer one, and are then forgotten."""
    rng = np.random.default_rng(7)
    document, head = text(rng, 1_470), text(rng, 1_600)
    with Planner(settings=Settings(embedder="none"), gates=ADAPTER_GATES, budget_bytes=1 << 26) as planner:
        planner.register("whole", np.concatenate([head, text(rng, 32), document]), NS)
        planner.register("half", np.concatenate([head[:1_200], text(rng, 32), document]), NS)
        for number in range(100):
            planner.register(str(number), np.concatenate([head[:100], text(rng, 1_500), document]), NS)
        prompt = np.concatenate([head, text(rng, 32), document])
        for donor in ("whole", "half"):
            plan = planner.plan(prompt, NS, exact_prefix_tokens=1_600)
            assert isinstance(plan, ReusePlan)
            assert {run.donor_id for run in plan.runs} == {donor}
            planner.forget(donor)
        assert isinstance(planner.plan(prompt, NS, exact_prefix_tokens=1_600), Decline)
