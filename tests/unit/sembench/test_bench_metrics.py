from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ContractError
from sembench.metrics import METRICS, ORDER, aggregate, aggregate_by_transform, metric_names, reference_table
from sembench.metrics.base import percentile
from sembench.metrics.rows import ArmRow, BackendRow, PairRow, PlanRow, RequestRow, row_from_json
from semblend.contract import Evidence

COUNT = st.integers(0, 50)
PLANS = st.builds(
    PlanRow,
    candidate_blocks=COUNT,
    eligible_blocks=COUNT,
    planned_tokens=COUNT,
    unverified_tokens=COUNT,
    runs=COUNT,
    donors=COUNT,
    discoveries=st.integers(0, 2),
    decline_reason=st.sampled_from([None, "no_candidate", "stale"]),
    mean_context_share=st.none() | st.sampled_from([0.0, 0.25, 0.5]),
    plan_ms=st.sampled_from([0.5, 1.0, 7.0]),
)
SCORE = st.none() | st.sampled_from([0.0, 0.5, 1.0])
ARMS = st.builds(
    ArmRow,
    request_id=st.just("r"),
    status=st.sampled_from(["ok", "ok", "ok", "timeout"]),
    ttft_ms=st.none() | st.sampled_from([10.0, 20.0, 80.0]),
    prompt_tokens=st.none() | COUNT,
    cached_tokens=st.none() | COUNT,
    contaminated=st.sampled_from([None, False, False, True]),
    text=st.none() | st.sampled_from(["x", "y"]),
    token_recall=SCORE,
    f1=SCORE,
    rouge_l=SCORE,
    exact_match=st.none() | st.booleans(),
)
PAIRS = st.builds(
    PairRow,
    warm_first=st.booleans(),
    mean_kl=st.none() | st.sampled_from([0.0, 0.5]),
    answer_flip=st.none() | st.booleans(),
)
BACKENDS = st.builds(
    BackendRow,
    engine_request_id=st.just("r"),
    outcome=st.sampled_from(["cold_fallback", "backend_materialized_reuse"]),
    advertised_tokens=st.none() | COUNT,
    boundary=st.none() | st.integers(0, 3),
    reused_tokens=st.none() | COUNT,
    decline_reason=st.none() | st.just("stale"),
    propagated_tokens=st.none() | st.integers(0, 2),
)
ROWS = st.builds(
    RequestRow,
    item_id=st.text("abc", min_size=1, max_size=4),
    dataset=st.just("d"),
    source_id=st.just("s"),
    transform=st.sampled_from(["one", "two"]),
    negative_control=st.booleans(),
    tenant=st.none() | st.just("t"),
    stream_id=st.none(),
    prompt_tokens=COUNT,
    total_blocks=COUNT,
    exact_hit_blocks=st.none() | COUNT,
    exact_prefix_blocks=st.none() | COUNT,
    exact_prefix_tokens=st.none() | COUNT,
    any_position_tokens=st.none() | COUNT,
    plan=st.none() | PLANS,
    token_plan=st.none() | PLANS,
    plan_beyond_prefix_tokens=st.none() | COUNT,
    changed_tokens=st.none() | COUNT,
    changed_planned_tokens=st.none() | COUNT,
    backend_confirmed_blocks=st.none() | COUNT,
    route_outcome=st.sampled_from([None, "semantic_placement", "cold_route"]),
    quality_pass=st.none() | st.booleans(),
    cold=st.none() | ARMS,
    warm=st.none() | ARMS,
    pair=st.none() | PAIRS,
    backend=st.none() | BACKENDS,
)


def by_hand(rows: list[RequestRow]) -> dict[str, tuple[Any, Any]]:
    """Numerator and denominator of every rate, written down a second time from the table of the contract."""
    out: dict[str, tuple[Any, Any]] = {}

    def rate(name: str, pairs: list[tuple[Any, Any]]) -> None:
        kept = [(n, d) for n, d in pairs if n is not None and d is not None]
        out[name] = (sum(n for n, _ in kept), sum(d for _, d in kept))

    negatives = [r for r in rows if r.negative_control]
    for prefix, some in (("", rows), ("negative_control_", negatives)):
        confirmed = "backend_confirmed_rate" if prefix else "backend_confirmed_block_rate"
        placement = "semantic_placement_rate" if prefix else "semantic_placement_rate_by_request"
        discovery = "discovery_rate" if prefix else "discovery_rate_by_request"
        rate(prefix + "exact_block_hit_rate", [(r.exact_hit_blocks, r.total_blocks) for r in some])
        rate(prefix + "any_position_token_rate", [(r.any_position_tokens, r.prompt_tokens) for r in some])
        rate(
            prefix + "semantic_candidate_block_rate",
            [(r.plan.candidate_blocks, r.total_blocks) for r in some if r.plan],
        )
        rate(
            prefix + "semantic_eligible_block_rate", [(r.plan.eligible_blocks, r.total_blocks) for r in some if r.plan]
        )
        rate(prefix + confirmed, [(r.backend_confirmed_blocks, r.total_blocks) for r in some])
        rate(prefix + placement, [(r.route_outcome == "semantic_placement", 1) for r in some if r.route_outcome])
        rate(prefix + discovery, [(r.plan.discoveries > 0, 1) for r in some if r.plan])
    rate("exact_prefix_block_rate", [(r.exact_prefix_blocks, r.total_blocks) for r in rows])
    both = [r for r in rows if r.plan and r.exact_hit_blocks is not None]
    rate(
        "semantic_eligible_lift",
        [(r.plan.eligible_blocks - (r.exact_hit_blocks or 0), r.total_blocks) for r in both if r.plan],
    )
    reported = [r for r in rows if r.backend_confirmed_blocks is not None and r.exact_hit_blocks is not None]
    rate(
        "backend_confirmed_lift",
        [((r.backend_confirmed_blocks or 0) - (r.exact_hit_blocks or 0), r.total_blocks) for r in reported],
    )
    cold = [r for r in rows if r.exact_prefix_tokens is not None]
    rate(
        "beyond_prefix_planned_token_rate",
        [(r.plan_beyond_prefix_tokens, r.prompt_tokens - (r.exact_prefix_tokens or 0)) for r in cold],
    )
    rate("plan_rate_by_request", [(r.plan.planned_tokens > 0, 1) for r in rows if r.plan])
    rate("changed_token_planned_rate", [(r.changed_planned_tokens, r.changed_tokens) for r in rows])
    plans = [r.plan for r in rows if r.plan]
    rate(
        "unverified_planned_token_rate", [(p.unverified_tokens, p.unverified_tokens + p.planned_tokens) for p in plans]
    )
    risky = [p for p in plans if p.mean_context_share is not None]
    rate(
        "mean_context_share",
        [(Fraction(p.mean_context_share or 0) * p.planned_tokens, p.planned_tokens) for p in risky],
    )
    rate("quality_pass_rate", [(r.quality_pass, 1) for r in rows])
    live_by_hand(rows, rate)
    return out


def ok(arm: ArmRow | None) -> bool:
    return arm is not None and arm.status == "ok" and arm.ttft_ms is not None


def clean_pair(row: RequestRow) -> bool:
    return ok(row.cold) and ok(row.warm) and not (row.cold and row.cold.contaminated)


def live_by_hand(rows: list[RequestRow], rate: Callable[[str, list[tuple[Any, Any]]], None]) -> None:
    reported = [(r, b) for r in rows if (b := r.backend) and b.reused_tokens is not None]
    reused = [r for r, b in reported if b.reused_tokens]
    rate("confirmed_reuse_rate_by_request", [(bool(b.reused_tokens), 1) for _, b in reported])
    rate(
        "negative_control_confirmed_reuse_rate",
        [(bool(b.reused_tokens), 1) for r, b in reported if r.negative_control],
    )
    rate("confirmed_reused_token_rate", [(b.reused_tokens, r.prompt_tokens) for r, b in reported])
    promised = [b for r in rows if (b := r.backend) and b.advertised_tokens]
    rate("materialized_reuse_rate", [(bool(b.reused_tokens), 1) for b in promised])
    rate("materialized_reuse_token_rate", [(b.reused_tokens or 0, b.advertised_tokens) for b in promised])
    seen = [
        (b, r.warm)
        for r, b in reported
        if b.reused_tokens and b.boundary is not None and r.warm and r.warm.cached_tokens is not None
    ]
    rate(
        "boundary_alignment_rate",
        [((b.boundary or 0) + (b.reused_tokens or 0) == w.cached_tokens, 1) for b, w in seen],
    )
    probes = [b.propagated_tokens for r in rows if (b := r.backend) and b.propagated_tokens is not None]
    rate("propagation_contamination_rate", [(tokens > 0, 1) for tokens in probes])
    arms = [arm for r in rows for arm in (r.cold, r.warm) if arm]
    rate("failed_request_rate", [(arm.status != "ok", 1) for arm in arms])
    rate("contaminated_cold_arm_rate", [(r.cold.contaminated, 1) for r in rows if r.cold])
    rate("reused_quality_pass_rate", [(r.quality_pass, 1) for r in reused])
    rate("answer_flip_rate", [(r.pair.answer_flip, 1) for r in rows if r.pair and clean_pair(r)])
    rate("reused_answer_flip_rate", [(r.pair.answer_flip, 1) for r in reused if r.pair and clean_pair(r)])
    for score in ("token_recall", "f1", "rouge_l", "exact_match"):
        cold = [
            r.cold
            for r in rows
            if ok(r.cold) and not (r.cold and r.cold.contaminated) and (r.warm is None or clean_pair(r))
        ]
        warm = [r.warm for r in rows if ok(r.warm) and (r.cold is None or clean_pair(r))]
        for arm_name, chosen in (("cold", cold), ("warm", warm)):
            values = [getattr(arm, score) for arm in chosen]
            rate(f"{arm_name}_{score}", [(None if v is None else Fraction(v), 1) for v in values])


@given(st.lists(ROWS, max_size=8))
def test_rates_against_the_table_written_twice(rows: list[RequestRow]) -> None:
    figures = aggregate(rows)
    for name, (numerator, denominator) in by_hand(rows).items():
        parts = figures["parts"][name]
        if denominator == 0:
            assert figures[name] is None, name
            assert parts["numerator"] is None
            assert parts["denominator"] is None
        else:
            assert (parts["numerator"], parts["denominator"]) == (pytest.approx(float(numerator)), denominator), name
            assert figures[name] == pytest.approx(float(Fraction(numerator) / denominator)), name


def test_every_share_is_checked_by_hand() -> None:
    shares = {name for name in ORDER if METRICS.get(name).unit == "share"}
    assert shares == set(by_hand([]))


ROW = RequestRow(
    item_id="i",
    dataset="d",
    source_id="s",
    transform="t",
    negative_control=False,
    tenant=None,
    stream_id=None,
    prompt_tokens=40,
    total_blocks=2,
)
PLAN = PlanRow(
    candidate_blocks=2,
    eligible_blocks=1,
    planned_tokens=32,
    unverified_tokens=0,
    runs=1,
    donors=1,
    discoveries=0,
    decline_reason=None,
    mean_context_share=0.5,
    plan_ms=1.0,
)


def test_none_is_not_zero() -> None:
    assert aggregate([ROW])["backend_confirmed_block_rate"] is None
    assert aggregate([replace(ROW, backend_confirmed_blocks=0)])["backend_confirmed_block_rate"] == 0.0
    assert aggregate([ROW])["semantic_eligible_block_rate"] is None
    assert aggregate([ROW])["semantic_path_extra_eligible_blocks"] is None
    assert aggregate([])["total_blocks"] is None


def test_unmeasured_rows_do_not_dilute_a_rate() -> None:
    rows = [ROW, replace(ROW, backend_confirmed_blocks=1)]
    assert aggregate(rows)["backend_confirmed_block_rate"] == 0.5
    assert aggregate(rows)["parts"]["backend_confirmed_block_rate"]["denominator"] == 2


def test_the_ablation_counts_differences() -> None:
    with_embedder = replace(PLAN, candidate_blocks=5, eligible_blocks=4, discoveries=1)
    without = replace(PLAN, candidate_blocks=3, eligible_blocks=3, discoveries=0)
    rows = [replace(ROW, plan=with_embedder, token_plan=without), replace(ROW, plan=without)]
    figures = aggregate(rows)
    assert figures["semantic_path_extra_candidate_blocks"] == 2
    assert figures["semantic_path_extra_eligible_blocks"] == 1
    assert figures["semantic_path_extra_discoveries"] == 1


@given(st.lists(st.floats(0, 100), min_size=1), st.sampled_from([1, 50, 99, 100]))
def test_percentiles_are_nearest_rank(values: list[float], percent: int) -> None:
    figure = percentile(values, percent)
    assert figure is not None
    at_or_below = sum(v <= figure.value for v in values)
    below = sum(v < figure.value for v in values)
    assert figure.value in values
    assert at_or_below * 100 >= percent * len(values) > below * 100


COLD_ARM = ArmRow(
    request_id="cold.i",
    status="ok",
    ttft_ms=80.0,
    total_ms=90.0,
    prompt_tokens=40,
    completion_tokens=4,
    cached_tokens=0,
    contaminated=False,
    text="x",
)
WARM_ARM = ArmRow(
    request_id="i",
    status="ok",
    ttft_ms=20.0,
    total_ms=30.0,
    prompt_tokens=40,
    completion_tokens=4,
    cached_tokens=32,
    contaminated=None,
    text="x",
)
REUSED = BackendRow(
    engine_request_id="i",
    outcome="backend_materialized_reuse",
    found_tokens=32,
    advertised_tokens=32,
    boundary=0,
    reused_tokens=32,
    computed_tokens=0,
    runs=1,
)
PAIR = replace(ROW, cold=COLD_ARM, warm=WARM_ARM, pair=PairRow(warm_first=True), backend=REUSED)
MISS = replace(
    PAIR,
    warm=replace(WARM_ARM, ttft_ms=80.0, cached_tokens=0),
    backend=BackendRow(engine_request_id="i", outcome="cold_fallback", reused_tokens=0),
)


def test_speedups_hold_clean_pairs_and_say_how_many() -> None:
    contaminated = replace(PAIR, cold=replace(COLD_ARM, contaminated=True))
    failed = replace(PAIR, warm=replace(WARM_ARM, status="timeout"))
    negative = replace(PAIR, negative_control=True)
    figures = aggregate([PAIR, MISS, MISS, contaminated, failed, negative, replace(ROW, warm=WARM_ARM)])
    assert figures["blended_ttft_speedup_median"] == 1.0
    assert figures["parts"]["blended_ttft_speedup_median"]["n"] == 3
    assert figures["hit_only_ttft_speedup_median"] == 4.0
    assert figures["parts"]["hit_only_ttft_speedup_median"]["n"] == 1
    assert figures["cold_ttft_ms_p50"] == 80.0
    assert figures["parts"]["cold_ttft_ms_p50"]["n"] == 4
    assert figures["parts"]["warm_ttft_ms_p50"]["n"] == 5
    assert figures["warm_ttft_ms_p50"] == 20.0
    assert figures["warm_ttft_ms_p95"] == figures["warm_ttft_ms_p99"] == 80.0


def test_what_the_backend_reported_is_counted() -> None:
    declined = replace(
        MISS, backend=BackendRow(engine_request_id="i", outcome="backend_declined_reuse", decline_reason="stale")
    )
    figures = aggregate([PAIR, MISS, declined, ROW])
    assert figures["backend_outcomes"] == {
        "backend_declined_reuse": 1,
        "backend_materialized_reuse": 1,
        "cold_fallback": 1,
    }
    assert figures["backend_decline_reasons"] == {"stale": 1}
    assert figures["parts"]["confirmed_reuse_rate_by_request"]["denominator"] == 2


def test_the_boundary_has_two_sources() -> None:
    behind = replace(PAIR, backend=replace(REUSED, boundary=8))
    assert aggregate([PAIR])["boundary_alignment_rate"] == 1.0
    assert aggregate([PAIR, behind])["boundary_alignment_rate"] == 0.5
    assert aggregate([replace(PAIR, warm=replace(WARM_ARM, cached_tokens=None))])["boundary_alignment_rate"] is None
    assert aggregate([MISS])["boundary_alignment_rate"] is None


def test_a_figure_of_the_chosen_names_the_one_of_all() -> None:
    """Hit-only and reused-only figures declare what must be shown with them, and it exists."""
    for name in ORDER:
        companion = METRICS.get(name).companion
        if name.startswith(("hit_only_", "reused_")):
            assert companion is not None, name
        if companion is not None:
            assert companion in ORDER
            assert f"`{companion}` |" in next(
                line for line in reference_table().splitlines() if line.startswith(f"| `{name}` |")
            )


def test_every_metric_but_counts_says_on_how_many_requests_it_rests() -> None:
    planned = replace(
        PAIR,
        plan=PLAN,
        token_plan=PLAN,
        exact_hit_blocks=1,
        exact_prefix_blocks=1,
        exact_prefix_tokens=16,
        any_position_tokens=20,
        plan_beyond_prefix_tokens=16,
        changed_tokens=2,
        changed_planned_tokens=0,
        backend_confirmed_blocks=2,
        route_outcome="cold_route",
        quality_pass=True,
    )
    parts = aggregate([planned, replace(planned, negative_control=True)])["parts"]
    silent = {name for name, part in parts.items() if part["evidence"] is not None and part["n"] is None}
    assert silent == {"negative_control_count"}


def test_evidence_is_named_only_beside_a_figure() -> None:
    parts = aggregate([replace(ROW, plan=PLAN, backend_confirmed_blocks=1)])["parts"]
    assert parts["semantic_eligible_block_rate"]["evidence"] == Evidence.OFFLINE
    assert parts["backend_confirmed_block_rate"]["evidence"] == Evidence.BACKEND_CONFIRMED
    assert parts["quality_pass_rate"]["evidence"] is None


def test_groups_by_transform() -> None:
    rows = [replace(ROW, item_id=str(i), transform=name) for i, name in enumerate("abba")]
    grouped = aggregate_by_transform(rows)
    assert {name: figures["requests"] for name, figures in grouped.items()} == {"a": 2, "b": 2}


@given(ROWS)
def test_rows_survive_json(row: RequestRow) -> None:
    assert row_from_json(row.to_json(), "here") == row


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"surprise": 1}, "unknown keys surprise"),
        ({"total_blocks": "2"}, "'total_blocks' is '2'"),
        ({"total_blocks": -1}, "counts are not negative"),
        ({"total_blocks": True}, "'total_blocks' is True"),
        ({"plan": {"candidate_blocks": 1}}, "plan: missing"),
        ({"plan": 3}, "'plan' is 3"),
        ({"warm": {"request_id": "r", "status": "ok", "ttft_ms": float("inf")}}, "warm: 'ttft_ms' is inf"),
        ({"warm": {"request_id": "r", "status": "ok", "ttft_ms": float("nan")}}, "warm: 'ttft_ms' is nan"),
        ({"warm": {"request_id": "r", "status": "ok", "ttft_ms": -1.0}}, "counts are not negative"),
        ({"cold": {"request_id": "r", "status": 3}}, "cold: 'status' is 3"),
        ({"backend": {"engine_request_id": "r"}}, "backend: missing outcome"),
        ({"pair": {"warm_first": True, "speedup": 9}}, "pair: unknown keys speedup"),
    ],
)
def test_strange_rows_are_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ContractError, match=problem):
        row_from_json({**ROW.to_json(), **change}, "here")


def test_a_row_without_identity_is_refused() -> None:
    record = ROW.to_json()
    del record["prompt_tokens"]
    with pytest.raises(ContractError, match="missing prompt_tokens"):
        row_from_json(record, "here")


def test_each_declaration_carries_its_own_name() -> None:
    for name in metric_names():
        metric = METRICS.get(name)
        assert metric.name == name
        assert metric.formula
        assert metric.needs


def test_a_cosine_may_be_negative() -> None:
    record = {**ROW.to_json(), "route_similarity": -0.2}
    assert row_from_json(record, "here").route_similarity == -0.2
