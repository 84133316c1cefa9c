from __future__ import annotations

import json
import math
import random
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ContractError
from sembench.metrics.rows import ArmRow, BackendRow, PairRow, RequestRow, speedup
from sembench.paired import RESAMPLES, median_interval, resampled_medians, summarize_pairs
from sembench.result import RunFacts, assemble
from semblend.contract import Evidence

BLOCK = 16
FROZEN = [6.5, 14.5]
FROZEN_ODD = [7.0, 15.0]


def pair(
    number: int,
    cold_ms: float,
    warm_ms: float,
    *,
    reused: int | None = 0,
    transform: str = "rag_reorder",
    negative: bool = False,
    cached: int | None = 0,
    **compared: Any,
) -> RequestRow:
    item = f"i{number}"
    contaminated = None if cached is None else cached > BLOCK
    return RequestRow(
        item_id=item,
        dataset="d",
        source_id="s",
        transform=transform,
        negative_control=negative,
        tenant=None,
        stream_id=None,
        prompt_tokens=160,
        total_blocks=10,
        cold=ArmRow(
            request_id=f"cold.{item}",
            status="ok",
            ttft_ms=cold_ms,
            total_ms=1e4,
            prompt_tokens=160,
            completion_tokens=4,
            cached_tokens=cached,
            contaminated=contaminated,
            text="yes",
            token_recall=0.5,
            f1=0.5,
            rouge_l=0.5,
            exact_match=True,
        ),
        warm=ArmRow(
            request_id=item,
            status="ok",
            ttft_ms=warm_ms,
            total_ms=1e4,
            prompt_tokens=160,
            completion_tokens=4,
            cached_tokens=reused,
            contaminated=None,
            text="yes",
            token_recall=1.0,
            f1=1.0,
            rouge_l=0.5,
            exact_match=True,
        ),
        pair=PairRow(warm_first=number % 2 == 0, **compared),
        backend=None if reused is None else BackendRow(engine_request_id=item, outcome="x", reused_tokens=reused),
    )


def summarized(rows: list[RequestRow], seed: int = 1) -> dict[str, Any]:
    return summarize_pairs(rows, block_size=BLOCK, seed=seed)


def test_blended_holds_the_misses_and_hit_only_does_not() -> None:
    rows = [pair(1, 400, 100, reused=128), pair(2, 100, 100), pair(3, 100, 125), pair(4, 100, 100, negative=True)]
    found = summarized(rows)
    assert (found["blended_ttft_speedup_median"], found["blended_ttft_speedup_n"]) == (1.0, 3)
    assert (found["hit_only_ttft_speedup_median"], found["hit_only_ttft_speedup_n"]) == (4.0, 1)
    assert (found["miss_ttft_speedup_median"], found["miss_ttft_speedup_n"]) == (0.9, 2)
    assert (found["negative_control_ttft_speedup_median"], found["negative_control_ttft_speedup_n"]) == (1.0, 1)
    assert found["blended_ttft_speedup_of_totals"] == 600 / 325
    assert found["confirmed_reuse_share_of_pairs"] == 1 / 3
    assert found["blended_ttft_speedup_ci95"] is None


def test_the_last_token_has_a_clock_of_its_own() -> None:
    rows = [pair(1, 400, 100, reused=128), pair(2, 100, 100), pair(3, 100, 100), pair(4, 100, 100, negative=True)]
    totals: list[tuple[float, float | None]] = [(3000.0, 1000.0), (1000.0, 2000.0), (1000.0, None), (9000.0, 1000.0)]
    timed = [
        replace(row, cold=replace(row.cold, total_ms=cold), warm=replace(row.warm, total_ms=warm))
        for row, (cold, warm) in zip(rows, totals, strict=True)
        if row.cold is not None and row.warm is not None
    ]
    found = summarized(timed)
    assert (found["blended_e2e_speedup_median"], found["blended_e2e_speedup_n"]) == (1.75, 2)
    assert (found["hit_only_e2e_speedup_median"], found["hit_only_e2e_speedup_n"]) == (3.0, 1)
    assert found["blended_e2e_speedup_ci95"] is None


def test_a_backend_that_reported_nothing_has_no_number_of_reusing_pairs() -> None:
    found = summarized([pair(1, 400, 100, reused=None), pair(2, 100, 100, reused=None)])
    assert found["blended_ttft_speedup_n"] == 2
    assert found["hit_only_ttft_speedup_n"] is None
    assert found["miss_ttft_speedup_n"] is None
    assert found["confirmed_reuse_share_of_pairs"] is None
    received = summarized([pair(1, 400, 100)])
    assert (received["hit_only_ttft_speedup_n"], received["hit_only_ttft_speedup_median"]) == (0, None)


def test_contaminated_and_failed_pairs_are_counted_and_left_out() -> None:
    good = pair(1, 200, 100)
    assert good.warm is not None
    assert good.cold is not None
    rows = [
        good,
        pair(2, 900, 100, cached=17),
        pair(3, 900, 100, cached=16),
        pair(4, 900, 100, cached=None),
        replace(pair(5, 900, 100), warm=replace(good.warm, status="timeout")),
        replace(pair(6, 900, 100), cold=ArmRow(request_id="cold.i6", status="reset_failed")),
        replace(pair(7, 900, 100), warm=replace(good.warm, ttft_ms=None)),
        replace(pair(8, 900, 100), cold=None),
    ]
    found = summarized(rows)
    assert found["pairs"] == 7
    assert found["failed_pairs"] == 3
    assert found["failed_arm_statuses"] == {"reset_failed": 1, "timeout": 1}
    assert found["flush_contaminated_pairs"] == 1
    assert found["contamination_checked_pairs"] == 3
    assert found["clean_pairs"] == found["blended_ttft_speedup_n"] == 3
    assert found["warm_first_pairs"] == 1


def test_the_mark_cannot_whitewash_the_tokens() -> None:
    row = pair(1, 900, 100, cached=160)
    assert row.cold is not None
    found = summarized([replace(row, cold=replace(row.cold, contaminated=False))])
    assert (found["flush_contaminated_pairs"], found["clean_pairs"]) == (1, 0)


def test_divergence_of_all_and_of_those_that_reused() -> None:
    same: dict[str, Any] = {"compared_positions": 16, "agreed_tokens": 16, "answer_flip": False}
    rows = [pair(n, 100, 100, mean_kl=0.0, worst_kl=0.0, **same) for n in range(3)]
    rows.append(
        pair(9, 100, 50, reused=64, mean_kl=4.0, worst_kl=9.0, compared_positions=1, agreed_tokens=0, answer_flip=True)
    )
    rows.append(pair(10, 100, 50, reused=64))
    found = summarized(rows)
    assert (found["warm_vs_cold_mean_kl_topk"], found["warm_vs_cold_kl_n"]) == (1.0, 4)
    assert (found["reused_warm_vs_cold_mean_kl_topk"], found["reused_warm_vs_cold_kl_n"]) == (4.0, 1)
    assert found["warm_vs_cold_worst_kl_topk"] == found["reused_warm_vs_cold_worst_kl_topk"] == 9.0
    assert found["warm_vs_cold_p95_kl_topk"] == 4.0
    assert (found["answer_flips"], found["answer_flip_rate"], found["answer_flip_n"]) == (1, 0.25, 4)
    assert (found["reused_answer_flips"], found["reused_answer_flip_n"]) == (1, 1)
    assert found["agreed_tokens_median"] == 16
    assert (found["identical_texts"], found["identical_text_n"]) == (5, 5)
    assert (found["f1_change_mean"], found["f1_change_n"]) == (0.5, 5)
    assert found["rouge_l_change_mean"] == 0.0
    assert found["exact_match_change_mean"] == 0.0


def test_propagation_is_judged_over_probes() -> None:
    rows = [pair(n, 100, 100) for n in range(4)]
    probed = [
        replace(row, backend=replace(row.backend, propagated_tokens=tokens))
        for row, tokens in zip(rows, (None, 0, 64, 0), strict=True)
        if row.backend is not None
    ]
    found = summarized(probed)
    assert (found["propagation_contaminated_requests"], found["propagation_probed_requests"]) == (1, 3)
    assert found["propagation_contamination_rate"] == 1 / 3
    assert summarized(rows)["propagation_contamination_rate"] is None


def test_every_transform_has_its_own_figures() -> None:
    rows = [pair(1, 200, 100, transform="a"), pair(2, 100, 100, transform="b", negative=True)]
    by = summarized(rows)["by_transform"]
    assert by["a"]["blended_ttft_speedup_median"] == 2.0
    assert by["a"]["negative_control_ttft_speedup_n"] == 0
    assert by["b"]["blended_ttft_speedup_n"] == 0
    assert by["b"]["negative_control_ttft_speedup_median"] == 1.0


RATIOS = st.lists(st.floats(0.1, 10), min_size=1, max_size=40)


@given(RATIOS, st.randoms(use_true_random=False), st.integers(0, 5))
def test_the_order_of_rows_changes_nothing(ratios: list[float], shuffle: random.Random, seed: int) -> None:
    rows = [pair(n, 100 * ratio, 100, reused=64 * (n % 2)) for n, ratio in enumerate(ratios)]
    mixed = list(rows)
    shuffle.shuffle(mixed)
    ours, theirs = summarized(rows, seed), summarized(mixed, seed)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert theirs[name] == pytest.approx(value) if not isinstance(value, dict) else True, name
    assert ours["blended_ttft_speedup_ci95"] == theirs["blended_ttft_speedup_ci95"]
    assert json.loads(json.dumps(ours, allow_nan=False)) == ours


@given(st.lists(st.floats(0.1, 10), min_size=6, max_size=40), st.integers(0, 3))
def test_the_interval_holds_the_median_and_stays_within_the_values(ratios: list[float], seed: int) -> None:
    found = median_interval(ratios, seed)
    assert found is not None
    low, high = found
    assert min(ratios) <= low <= statistics.median(ratios) <= high <= max(ratios)


def test_too_few_values_have_no_interval() -> None:
    assert median_interval([1.0] * 5, 0) is None
    assert median_interval([1.0] * 6, 0) == [1.0, 1.0]


def test_the_interval_is_frozen() -> None:
    """The resamples come from a stream numpy has promised never to change: a gate elsewhere must find the same."""
    values = [float(n) for n in range(1, 21)]
    assert median_interval(values, 7) == FROZEN
    assert median_interval(values[::-1], 7) == FROZEN
    assert median_interval([*values, 21.0], 7) == FROZEN_ODD
    assert median_interval(values, 2**40 + 7) is not None


def test_the_interval_covers_the_median_about_as_often_as_it_says() -> None:
    """Percentile bootstrap at n = 25: nominal 95 %; a broken tail or resampling falls far out of this band."""
    draws = random.Random(5)
    trials = 200
    covered = 0
    for trial in range(trials):
        found = median_interval([math.exp(draws.gauss(0, 0.5)) for _ in range(25)], trial)
        assert found is not None
        covered += found[0] <= 1.0 <= found[1]
    assert 0.88 * trials <= covered <= trials
    assert RESAMPLES == 2000


@pytest.mark.parametrize("n", [6, 7, 15, 24])
def test_the_short_way_draws_what_resampling_draws(n: int) -> None:
    """Against real resamples: the share of medians at or below each value."""
    ordered = np.sort(np.random.RandomState(n).lognormal(size=n))
    trials = 20_000
    ours = resampled_medians(ordered, trials, 1)
    indices = np.random.RandomState(2).randint(0, n, (trials, n))
    theirs = np.median(ordered[indices], axis=1)
    for value in ordered:
        assert np.mean(ours <= value) == pytest.approx(np.mean(theirs <= value), abs=0.02)


def test_large_runs_cost_no_more() -> None:
    draws = random.Random(1)
    values = [draws.random() for _ in range(50_000)]
    found = median_interval(values, 0)
    assert found is not None
    assert found[0] < statistics.median(values) < found[1]
    assert found[1] - found[0] < 0.02


def test_a_speedup_needs_both_arms() -> None:
    row = pair(1, 100, 50)
    assert speedup(row) == 2.0
    with pytest.raises(ValueError, match="i1 is not a clean pair"):
        speedup(replace(row, cold=None))


def facts(**config: Any) -> RunFacts:
    return RunFacts(
        kind="live", evidence=Evidence.MEASURED_LIVE, manifest_name="m", manifest_digest="0" * 64, config=config, seed=9
    )


def test_results_compute_their_pairs_themselves() -> None:
    rows = [pair(1, 200, 100), pair(2, 100, 100)]
    result = assemble(facts(block_size=BLOCK), rows)
    assert result["paired"] == summarize_pairs(rows, block_size=BLOCK, seed=9)
    alone = [replace(row, cold=None, pair=None) for row in rows]
    assert assemble(facts(block_size=BLOCK), alone)["paired"] is None
    assert assemble(facts(), alone)["paired"] is None
    with pytest.raises(ContractError, match=r"config\.block_size is None"):
        assemble(facts(), rows)
