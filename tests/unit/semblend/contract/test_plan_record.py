from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend.contract import ContextRisk, Decline, DeclineReason, Outcome, ReusePlan, Run, TokenRange

RISK = ContextRisk(0, 0, 0.0)


def run(start: int, end: int) -> Run:
    return Run("d", 0, start, end - start, RISK)


def plan(claimed: list[tuple[int, int]], runs: list[tuple[int, int]], compute: list[tuple[int, int]]) -> ReusePlan:
    return ReusePlan(
        prompt_tokens=100,
        exact_prefix_tokens=10,
        claimed=tuple(TokenRange(*c) for c in claimed),
        runs=tuple(run(*r) for r in runs),
        compute=tuple(TokenRange(*c) for c in compute),
    )


def test_a_partition_is_accepted_and_counted() -> None:
    good = plan([(10, 60)], [(20, 40), (50, 60)], [(10, 20), (40, 50)])
    assert (good.reused_tokens, good.computed_tokens, good.claimed_tokens, good.claim_end) == (30, 20, 50, 60)
    assert good.reuse_ratio == pytest.approx(30 / 90)
    assert plan([(20, 40), (50, 60)], [(20, 40), (50, 60)], []).claimed_tokens == 30


@pytest.mark.parametrize(
    ("claimed", "runs", "compute"),
    [
        ([(10, 60)], [], [(10, 60)]),  # nothing reused
        ([(10, 60)], [(20, 40)], [(10, 20)]),  # the end is unaccounted for
        ([(10, 60)], [(20, 60)], []),  # a hole at the start
        ([(10, 60)], [(10, 30), (40, 60)], []),  # a hole in the middle
        ([(10, 60)], [(10, 40), (30, 60)], []),  # an overlap
        ([(10, 60)], [(10, 60)], [(60, 70)]),  # planned beyond the claim
        ([(5, 60)], [(5, 60)], []),  # inside the exact prefix
        ([(10, 100)], [(10, 100)], []),  # no token left to the engine
        ([(10, 30), (30, 60), (80, 90)], [(10, 30), (30, 60)], []),  # an empty claim
        ([], [(10, 20)], []),
    ],
)
def test_anything_but_a_partition_is_refused(
    claimed: list[tuple[int, int]], runs: list[tuple[int, int]], compute: list[tuple[int, int]]
) -> None:
    with pytest.raises(ValueError, match=r"."):
        plan(claimed, runs, compute)


@given(st.lists(st.tuples(st.integers(10, 98), st.integers(1, 40)), min_size=1, max_size=5), st.data())
def test_the_constructor_agrees_with_counting(pieces: list[tuple[int, int]], data: st.DataObject) -> None:
    """Positions counted one by one are the oracle of the sweep in the constructor."""
    spans = [(start, min(start + length, 99)) for start, length in pieces]
    as_run = data.draw(st.lists(st.booleans(), min_size=len(spans), max_size=len(spans)))
    runs = [s for s, chosen in zip(spans, as_run, strict=True) if chosen]
    compute = [s for s, chosen in zip(spans, as_run, strict=True) if not chosen]
    claim = (10, max(end for _, end in spans))
    counts = [0] * 100
    for start, end in spans:
        for i in range(start, end):
            counts[i] += 1
    partition = bool(runs) and all(count == 1 for count in counts[claim[0] : claim[1]])
    if partition:
        assert plan([claim], runs, compute).reused_tokens == sum(end - start for start, end in runs)
    else:
        with pytest.raises(ValueError, match=r"."):
            plan([claim], runs, compute)


def test_the_differing_fraction_falls_after_the_head() -> None:
    risk = ContextRisk(preceding_tokens=40, differing_tokens=40, mean_share=0.1)
    assert risk.head_share == 1.0
    assert risk.share_at(40) == 0.5
    assert ContextRisk(0, 0, 0.0).head_share == 0.0


def test_declines_are_cold_or_discovery() -> None:
    assert Decline(DeclineReason.NO_CANDIDATE).outcome is Outcome.COLD_FALLBACK
    assert Decline(DeclineReason.NOT_TOKEN_IDENTICAL).outcome is Outcome.SEMANTIC_DISCOVERY_ONLY
