from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sembench.replay.coverage import cover
from semblend.contract import ContextRisk, ReusePlan, Run, TokenRange

RISK = ContextRisk(0, 0, 0.0)


def plan_of(runs: list[Run], tokens: int) -> ReusePlan:
    """Claims each run alone; neighbours that touch are one claim."""
    claimed: list[TokenRange] = []
    for run in runs:
        if claimed and claimed[-1].end == run.target_start:
            claimed[-1] = TokenRange(claimed[-1].start, run.target_end)
        else:
            claimed.append(TokenRange(run.target_start, run.target_end))
    return ReusePlan(tokens, 0, tuple(claimed), tuple(runs), ())


@st.composite
def planned(draw: st.DrawFn) -> tuple[list[int], dict[str, list[int]], list[Run]]:
    """A recipient, donors and runs, some of which lie: they point at other tokens or past the donor's end."""
    recipient = draw(st.lists(st.integers(0, 1), min_size=8, max_size=40))
    donors = {name: draw(st.lists(st.integers(0, 1), min_size=4, max_size=40)) for name in "ab"}
    runs: list[Run] = []
    position = 0
    while position < len(recipient) - 1:
        position += draw(st.integers(0, 3))
        length = draw(st.integers(1, 9))
        if position + length >= len(recipient):
            break
        donor = draw(st.sampled_from("abz"))
        runs.append(Run(donor, draw(st.integers(0, 30)), position, length, RISK))
        position += length
    if not runs:
        runs.append(Run("a", 0, 0, 1, RISK))
    return recipient, donors, runs


def array(values: list[int]) -> NDArray[np.int64]:
    return np.asarray(values, dtype=np.int64)


@given(planned(), st.integers(1, 6))
def test_blocks_against_a_count_by_hand(case: tuple[list[int], dict[str, list[int]], list[Run]], size: int) -> None:
    recipient, donors, runs = case
    origin: dict[int, tuple[str, int]] = {}
    wrong = 0
    for run in runs:
        for step in range(run.length):
            tokens = donors.get(run.donor_id, [])
            place = run.donor_start + step
            if place < len(tokens) and tokens[place] == recipient[run.target_start + step]:
                origin[run.target_start + step] = (run.donor_id, place)
            else:
                wrong += 1
    candidate = eligible = 0
    for block in range(len(recipient) // size):
        places = [origin.get(i) for i in range(block * size, (block + 1) * size)]
        if None in places:
            continue
        candidate += 1
        first = places[0]
        assert first is not None
        eligible += places == [(first[0], first[1] + i) for i in range(size)]
    coverage = cover(plan_of(runs, len(recipient)), array(recipient), {n: array(t) for n, t in donors.items()})
    assert coverage.candidate_blocks(size) == candidate
    assert coverage.eligible_blocks(size) == eligible
    assert coverage.planned_tokens == len(origin)
    assert coverage.unverified_tokens == wrong


def test_a_block_from_two_donors_is_candidate_but_not_eligible() -> None:
    recipient = array([1, 2, 3, 4, 5, 6, 7, 8, 9])
    donors = {"a": array([1, 2, 3, 4, 5, 6]), "b": array([7, 8])}
    plan = plan_of([Run("a", 0, 0, 6, RISK), Run("b", 0, 6, 2, RISK)], len(recipient))
    coverage = cover(plan, recipient, donors)
    assert (coverage.candidate_blocks(4), coverage.eligible_blocks(4)) == (2, 1)
