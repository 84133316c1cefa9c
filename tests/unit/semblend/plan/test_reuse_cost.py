"""The cost model: laws of its prices, what stalls and slow hours do to them, and which plans are declined."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend import Decline, ReusePlan
from semblend.contract import ContextRisk, DeclineReason, Run, TokenRange
from semblend.plan.reuse_cost import ReuseCost, Timing, Work, pass_work, reuse_work, saved_work

# Milliseconds per unit of a made-up server: 20 per pass, 0.25 per token, 15 per million pairs, 0.3 per row.
PRICES = Work(20.0, 0.25, 15.0, 0.3, 40.0, 0.004, 1.0)
PROBE = (
    [TokenRange(0, 128)],
    [TokenRange(0, 16)],
    [TokenRange(3968, 4096)],
    [TokenRange(at, at + 1) for at in range(2048, 4096, 128)],
)
RISK = ContextRisk(100, 50, 0.2)
positions = st.integers(0, 5_000)
ranges = st.tuples(positions, st.integers(1, 2_000)).map(lambda cut: TokenRange(cut[0], cut[0] + cut[1]))


def true_ms(work: Work, slower: float = 1.0) -> float:
    return slower * sum(units * price for units, price in zip(work, PRICES, strict=True))


def probed(slower: float = 1.0) -> tuple[Timing, ...]:
    return tuple((pass_work(shape), true_ms(pass_work(shape), slower)) for shape in PROBE)


def plan_of(gap: int, reused: int, pieces: int = 1, rest: int = 100, fraction: float | None = None) -> ReusePlan:
    """``pieces`` runs of ``reused`` tokens in all, each after its part of ``gap`` tokens."""
    at, runs, gaps = 0, [], []
    for piece in range(pieces):
        before, length = gap // pieces, reused // pieces
        if before:
            gaps.append(TokenRange(at, at + before))
        runs.append(Run(f"d{piece}", 7, at + before, length, RISK))
        at += before + length
    claim = (TokenRange(0, at),)
    return ReusePlan(at + rest, 0, claim, tuple(runs), tuple(gaps), recompute_fraction=fraction)


def work_of_day(draws: random.Random) -> Iterator[Work]:
    """Steps of an engine and plans it serves."""
    while True:
        start, length = draws.randrange(4_000), draws.randrange(64, 2_048)
        yield pass_work([TokenRange(start, start + length)])
        plan = plan_of(draws.randrange(8, 800), draws.randrange(100, 4_000), draws.randrange(1, 5))
        yield reuse_work(plan, 0)
        yield reuse_work(plan_of(8, draws.randrange(1_000, 4_000), fraction=0.1), draws.randrange(10, 500))


@given(st.lists(st.tuples(ranges, st.floats(1e-3, 1e6)), max_size=20), ranges, st.integers(1, 3_000))
def test_more_work_never_takes_less_time(measured: list[tuple[TokenRange, float]], part: TokenRange, more: int) -> None:
    cost = ReuseCost(probed())
    for step, ms in measured:
        cost.took(pass_work([step]), ms)
    longer = TokenRange(part.start, part.end + more)
    assert 0.0 <= cost.ms(pass_work([part])) <= cost.ms(pass_work([longer]))
    assert cost.ms(pass_work([part])) <= cost.ms(pass_work([part, longer]))


@given(st.integers(0, 1_000), st.integers(1, 4_000), st.integers(1, 4_000), st.integers(0, 500))
def test_a_plan_that_saves_more_is_worth_more(gap: int, reused: int, more: int, asked: int) -> None:
    """Holds as long as a loaded token is cheaper than a computed one."""
    cost = ReuseCost(probed())

    def worth(plan: ReusePlan) -> float:
        return cost.ms(saved_work(plan)) - cost.ms(reuse_work(plan, asked))

    assert worth(plan_of(gap, reused)) < worth(plan_of(gap, reused + more))


@pytest.mark.parametrize("seed", range(5))
def test_it_predicts_what_it_was_taught_although_the_machine_stalls(seed: int) -> None:
    """One measurement in ten takes 3 to 100 times as long."""
    draws = random.Random(seed)
    cost, day = ReuseCost(probed()), work_of_day(draws)
    for work in itertools.islice(day, 300):
        stall = draws.uniform(3.0, 100.0) if draws.random() < 0.1 else 1.0
        cost.took(work, true_ms(work) * draws.lognormvariate(0.0, 0.08) * stall)
    errors = sorted(abs(cost.ms(work) / true_ms(work) - 1.0) for work in itertools.islice(day, 99))
    assert errors[49] < 0.2
    assert errors[89] < 0.35


def test_one_stall_of_a_minute_changes_no_decision() -> None:
    cost, served = ReuseCost(probed()), plan_of(100, 1_500)
    cost.took(reuse_work(served, 0), 60_000.0)
    assert cost.judge(served, 0) is served


def test_a_machine_that_is_slower_for_everything_serves_the_same_plans() -> None:
    plans = [plan_of(gap, reused, pieces) for gap in (50, 900) for reused in (40, 300, 2_000) for pieces in (1, 4)]
    cost, day = ReuseCost(probed()), work_of_day(random.Random(0))
    for work in itertools.islice(day, 200):
        cost.took(work, true_ms(work))
    before = [isinstance(cost.judge(plan, 0), ReusePlan) for plan in plans]
    for work in itertools.islice(day, 30):
        cost.took(work, true_ms(work, slower=3.0))
    assert [isinstance(cost.judge(plan, 0), ReusePlan) for plan in plans] == before
    assert len(set(before)) == 2
    assert cost.ms(pass_work([TokenRange(0, 2_000)])) == pytest.approx(
        true_ms(pass_work([TokenRange(0, 2_000)]), 3.0), rel=0.2
    )


def test_a_plan_that_takes_longer_than_it_saves_is_declined_with_both_figures() -> None:
    """Choosing 5 of 50 tokens computes a question of 500 twice."""
    plan = plan_of(10, 50, rest=500, fraction=0.1)
    declined = ReuseCost(probed()).judge(plan, 500)
    assert isinstance(declined, Decline)
    assert declined.reason is DeclineReason.NOT_WORTH
    assert "save 15 ms" in declined.detail
    assert isinstance(ReuseCost(probed()).judge(plan_of(10, 2_000, rest=500, fraction=0.1), 500), ReusePlan)


def test_a_small_loss_is_no_reason_to_decline() -> None:
    """A model of which a pass takes a millisecond."""
    plan = plan_of(10, 20)
    assert isinstance(ReuseCost(probed()).judge(plan, 0), Decline)
    assert ReuseCost(probed(slower=0.05)).judge(plan, 0) is plan


def test_without_a_probe_nothing_is_declined() -> None:
    cost, plan = ReuseCost(), plan_of(2_000, 10)
    for _ in range(100):
        cost.took(reuse_work(plan, 0), 1e6)
        cost.took(pass_work([TokenRange(0, 100)]), 1.0)
    assert not cost.is_known
    assert cost.judge(plan, 0) is plan


def test_loads_that_become_slow_end_reuse_and_are_tried_again_now_and_then() -> None:
    """A hundred times as slow, as from a disk, and then as fast as before."""
    cost, plan = ReuseCost(probed()), plan_of(0, 1_000)
    step = pass_work([TokenRange(0, 400)])

    def served(load_ms: float) -> list[bool]:
        answers = []
        for _ in range(1_000):
            answers.append(isinstance(cost.judge(plan, 0), ReusePlan))
            if answers[-1]:
                cost.served(plan, 0, load_ms, 0.0)
            cost.took(step, true_ms(step))
        return answers

    assert all(served(5.0))
    slow = served(900.0)
    assert 0 < sum(slow[500:]) < 50
    assert all(served(5.0)[500:])


def test_a_served_plan_says_what_was_expected_of_it() -> None:
    cost, plan = ReuseCost(probed()), plan_of(100, 1_000)
    taken, saved = cost.served(plan, 0, 3.0, 60.0)
    assert taken is not None
    assert saved is not None
    assert saved == pytest.approx(true_ms(saved_work(plan)), rel=0.1)
    assert taken < saved
    assert ReuseCost().served(plan, 0, 3.0, 60.0) == (None, None)


def test_a_slow_load_changes_no_price_of_computing() -> None:
    cost, plan, step = ReuseCost(probed()), plan_of(0, 1_000), pass_work([TokenRange(0, 400)])
    before = cost.ms(step)
    cost.served(plan, 0, 5_000.0, 0.0)
    assert cost.ms(step) == before


def test_a_day_of_measurements_takes_the_memory_of_one() -> None:
    cost, day = ReuseCost(probed()), work_of_day(random.Random(1))
    cost.took(next(day), 10.0)
    size = len(pickle.dumps(cost))
    for work in itertools.islice(day, 1_000):
        cost.took(work, true_ms(work))
    assert len(pickle.dumps(cost)) <= 2 * size


def test_the_pairs_of_a_prefill_in_chunks_are_those_of_one_in_a_whole() -> None:
    whole = pass_work([TokenRange(0, 3_000)])
    chunks = [pass_work([TokenRange(start, start + 1_000)]) for start in (0, 1_000, 2_000)]
    assert sum(chunk.pairs for chunk in chunks) == pytest.approx(whole.pairs)


def test_time_that_did_not_pass_is_no_measurement() -> None:
    cost = ReuseCost(probed())
    before = cost.ms(pass_work([TokenRange(0, 500)]))
    cost.took(pass_work([TokenRange(0, 500)]), 0.0)
    cost.took(Work(), 5.0)  # of no work
    ReuseCost().took(Work(), 5.0)
    assert cost.ms(pass_work([TokenRange(0, 500)])) == before
