from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sembench.gates.calibration import read_noise_floor_kl
from sembench.gates.engine_summary import EngineEvidence, read_engine_summaries
from sembench.gates.request import GateRequest
from sembench.gates.verdict import Verdict, judge
from sembench.metrics.rows import PlanRow, RequestRow
from sembench.result import RunFacts, assemble, read_result, write_result
from semblend.contract import Evidence
from semblend.errors import ContractError

PLAN = PlanRow(8, 6, 140, 0, 2, 1, 0, None, 0.5, 1.0)
ROW = RequestRow(
    "a",
    "d",
    "s",
    "instruction_variant",
    False,
    "t",
    None,
    prompt_tokens=165,
    total_blocks=10,
    exact_hit_blocks=1,
    exact_prefix_blocks=0,
    exact_prefix_tokens=0,
    any_position_tokens=150,
    plan=PLAN,
    plan_beyond_prefix_tokens=140,
    backend_confirmed_blocks=4,
    route_outcome="semantic_placement",
    quality_pass=True,
)
COLD = replace(
    ROW,
    item_id="b",
    transform="negative_control",
    negative_control=True,
    exact_hit_blocks=0,
    any_position_tokens=0,
    plan=replace(
        PLAN,
        candidate_blocks=0,
        eligible_blocks=0,
        planned_tokens=0,
        decline_reason="no_candidate",
        mean_context_share=None,
    ),
    plan_beyond_prefix_tokens=0,
    backend_confirmed_blocks=0,
    route_outcome="cold_route",
)
PAIRED = {
    "pairs": 2,
    "contamination_checked_pairs": 2,
    "flush_contaminated_pairs": 0,
    "clean_pairs": 2,
    "blended_ttft_speedup_median": 1.4,
    "negative_control_ttft_speedup_median": 1.02,
    "warm_vs_cold_mean_kl_topk": 0.03,
}
ENGINE = EngineEvidence(3, 700, 9, 2, 0, ("a",), True)


def live_result(*rows: RequestRow, paired: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[RequestRow]]:
    facts = RunFacts(
        "live",
        Evidence.MEASURED_LIVE,
        "m.jsonl",
        "0" * 64,
        {"block_size": 16},
        paired=PAIRED if paired is None else paired,
    )
    chosen = list(rows) or [ROW, COLD]
    return json.loads(json.dumps(assemble(facts, chosen))), chosen


def verdict(request: GateRequest, engine: EngineEvidence | None = ENGINE, **options: Any) -> Verdict:
    result, rows = live_result(paired=options.pop("paired", None))
    return judge(result, rows, engine, request, **options)


MET: list[tuple[str, float, float]] = [
    ("min_quality_pass_rate", 1.0, 1.0 + 1e-6),
    ("min_semantic_placement_rate", 0.5, 0.51),
    ("min_backend_confirmed_block_rate", 0.2, 0.21),
    ("min_semantic_eligible_lift", 0.25, 0.26),
    ("min_any_position_token_rate", 0.45, 0.46),
    ("min_materialization_events", 3, 4),
    ("min_materialized_tokens", 700, 701),
    ("min_materialized_units", 9, 10),
    ("min_blended_ttft_speedup", 1.4, 1.41),
    ("max_negative_control_speedup_deviation", 0.021, 0.019),
    ("max_warm_vs_cold_kl", 0.03, 0.029),
]


@pytest.mark.parametrize(("gate", "met", "missed"), MET)
def test_each_limit_holds_on_its_own_side(gate: str, met: float, missed: float) -> None:
    passed = verdict(GateRequest(**{gate: met}))  # type: ignore[arg-type]
    assert passed.failures == []
    failed = verdict(GateRequest(**{gate: missed}))  # type: ignore[arg-type]
    assert len(failed.failures) == 1
    assert failed.failures[0].startswith(gate)


@pytest.mark.parametrize("gate", [gate for gate, _, _ in MET])
def test_a_requested_gate_without_its_metric_fails(gate: str) -> None:
    """Even at a limit of 0, which 0 would meet: None is not 0."""
    bare = replace(
        ROW, plan=None, any_position_tokens=None, backend_confirmed_blocks=None, route_outcome=None, quality_pass=None
    )
    result, rows = live_result(bare, paired={})
    request = GateRequest(**{gate: 0})  # type: ignore[arg-type]
    assert gate in request.requested()
    refused = judge(result, rows, None, request)
    assert len(refused.failures) == 1
    assert "not measured" in refused.failures[0]
    assert len(refused.missing) == 1
    allowed = judge(result, rows, None, replace(request, allow_missing=True))
    assert allowed.failures == []
    assert len(allowed.missing) == 1


def test_negative_controls_are_always_judged() -> None:
    leaking = replace(COLD, backend_confirmed_blocks=1)
    result, rows = live_result(ROW, leaking)
    assert judge(result, rows, None, GateRequest()).failures == [
        "max_negative_control_confirmed_rate: negative_control_backend_confirmed_rate is 0.1, wanted at most 0.0"
    ]
    assert judge(result, rows, None, GateRequest(max_negative_control_confirmed_rate=0.1)).passed
    assert judge(result, rows, None, GateRequest(allow_missing=True)).failures


def test_an_unmeasured_negative_rate_fails_only_if_asked_for() -> None:
    result, rows = live_result(ROW)
    assert judge(result, rows, None, GateRequest()).passed
    asked = judge(result, rows, None, GateRequest(max_negative_control_confirmed_rate=0.0))
    assert "not measured" in asked.failures[0]


def test_contamination() -> None:
    asked = GateRequest(require_contamination_check=True)
    assert verdict(asked).passed
    assert verdict(asked, paired={**PAIRED, "flush_contaminated_pairs": 1, "clean_pairs": 1}).passed
    for change in (
        {"contamination_checked_pairs": 1},
        {"flush_contaminated_pairs": 1},
        {"pairs": 0, "contamination_checked_pairs": 0, "clean_pairs": 0},
        {"propagation_contamination_rate": 0.1},
        {"clean_pairs": None},
    ):
        assert verdict(asked, paired={**PAIRED, **change}).failures, change
    assert verdict(replace(asked, allow_missing=True), paired={**PAIRED, "clean_pairs": None}).passed


def test_the_noise_floor_moves_the_kl_limit() -> None:
    asked = GateRequest(max_warm_vs_cold_kl=0.02)
    assert not verdict(asked).passed
    assert verdict(asked, noise_floor_kl=0.011).passed
    assert not verdict(asked, noise_floor_kl=0.009).passed


def test_calibrations_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"calibration_version": "sembench.calibration.v1", "mean_kl_topk": 0.5}))
    assert read_noise_floor_kl(path) == 0.5
    path.write_text(json.dumps({"calibration_version": "sembench.calibration.v1"}))
    assert read_noise_floor_kl(path) is None
    for content in (
        "{",
        "[]",
        '{"mean_kl_topk": 0.5}',
        '{"calibration_version": "sembench.calibration.v1", "mean_kl_topk": -1}',
    ):
        path.write_text(content)
        with pytest.raises(ContractError):
            read_noise_floor_kl(path)


def summary(tmp_path: Path, name: str, **content: Any) -> Path:
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps({"engine": "vllm", **content}))
    return path


def event(kind: str, request_id: str | None, **more: Any) -> dict[str, Any]:
    return {"event": kind, "request_id": request_id, **more}


def test_summaries_are_summed_and_joined_across_files(tmp_path: Path) -> None:
    scheduler = summary(
        tmp_path,
        "scheduler",
        semantic_hits=2,
        errors=0,
        events=[event("semantic_hit", "r1"), event("semantic_hit", "r2")],
    )
    worker = summary(
        tmp_path,
        "worker",
        materialization_events=1,
        materialized_tokens=64,
        errors=["ERROR one"],
        events=[event("materialized", "r2", tokens=64)],
    )
    evidence = read_engine_summaries([scheduler, worker])
    assert evidence == EngineEvidence(1, 64, None, 2, 1, ("r2",), False)


def test_a_hit_here_and_a_load_there_are_not_reuse(tmp_path: Path) -> None:
    """The file-level flag of others: true, although no single request had both."""
    path = summary(
        tmp_path,
        "s",
        semantic_hits=1,
        materialization_events=1,
        materialized_tokens=64,
        materialized_semantic_kv_reuse=True,
        events=[event("semantic_hit", "r1"), event("materialized", "r2", tokens=64)],
    )
    found = verdict(GateRequest(require_materialized_reuse=True), read_engine_summaries([path]))
    assert len(found.failures) == 2
    assert any("claims materialized_semantic_kv_reuse" in failure for failure in found.failures)


@pytest.mark.parametrize(
    "events",
    [
        [event("semantic_hit", "r1"), event("materialized", "r1", tokens=0)],
        [event("semantic_hit", None), event("materialized", None, tokens=64)],
        [event("semantic_hit", "r1"), event("load_advertised", "r1", tokens=64)],
        {"semantic_hit": 1, "materialized": 1},
        None,
    ],
)
def test_what_does_not_prove_reuse(tmp_path: Path, events: Any) -> None:
    path = summary(tmp_path, "s", semantic_hits=1, materialization_events=1, events=events)
    evidence = read_engine_summaries([path])
    assert not verdict(GateRequest(require_materialized_reuse=True), evidence).passed


def test_a_claim_of_reuse_is_checked_even_unasked(tmp_path: Path) -> None:
    path = summary(tmp_path, "s", materialized_semantic_kv_reuse=True)
    assert not verdict(GateRequest(), read_engine_summaries([path])).passed


def test_required_evidence_needs_a_summary() -> None:
    for gate in ("require_materialized_reuse", "require_no_engine_errors"):
        assert not verdict(GateRequest(**{gate: True}), None).passed
        assert verdict(GateRequest(**{gate: True, "allow_missing": True}), None).passed
        assert verdict(GateRequest(**{gate: True})).passed
    failing = replace(ENGINE, errors=1)
    assert not verdict(GateRequest(require_no_engine_errors=True), failing).passed


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"engine": "vllm", "materialized_tokens": -5}',
        '{"engine": "vllm", "materialized_tokens": "9"}',
    ],
)
def test_strange_summaries_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(ContractError):
        read_engine_summaries([path])


def set_in(*path: str | int) -> Callable[[dict[str, Any], Any], None]:
    def put(result: dict[str, Any], value: Any) -> None:
        place: Any = result
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return put


FABRICATIONS: list[tuple[Callable[[dict[str, Any], Any], None], Any]] = [
    (set_in("aggregate", "backend_confirmed_block_rate"), 0.9),
    (set_in("aggregate", "negative_control_backend_confirmed_rate"), None),
    (set_in("aggregate", "semantic_eligible_lift"), 0.8),
    (set_in("aggregate", "quality_pass_rate"), True),
    (set_in("aggregate", "parts", "backend_confirmed_block_rate", "denominator"), 4),
    (set_in("aggregate", "parts", "semantic_eligible_block_rate", "evidence"), "backend_confirmed"),
    (set_in("aggregate", "parts"), {}),
    (set_in("aggregate", "parts"), None),
    (set_in("by_transform", "instruction_variant", "backend_confirmed_block_rate"), 1.0),
    (set_in("by_transform"), {}),
    (set_in("run", "items"), 5),
    (set_in("run", "evidence"), "offline"),
    (set_in("run", "evidence"), "simulated"),
]


@pytest.mark.parametrize(("put", "value"), FABRICATIONS)
def test_fabricated_aggregates_are_refused(put: Callable[[dict[str, Any], Any], None], value: Any) -> None:
    result, rows = live_result()
    assert judge(result, rows, None, GateRequest()).passed
    forged = copy.deepcopy(result)
    put(forged, value)
    assert judge(forged, rows, None, GateRequest(allow_missing=True)).failures


@pytest.mark.parametrize(
    "forged",
    [
        replace(ROW, backend_confirmed_blocks=11),
        replace(ROW, exact_hit_blocks=11),
        replace(ROW, any_position_tokens=166),
        replace(ROW, total_blocks=200),
        replace(ROW, plan=replace(PLAN, eligible_blocks=9)),
        replace(ROW, plan=replace(PLAN, planned_tokens=400)),
        replace(ROW, plan=replace(PLAN, decline_reason="no_candidate")),
        replace(ROW, token_plan=replace(PLAN, candidate_blocks=11)),
        replace(ROW, plan=replace(PLAN, unverified_tokens=1)),
    ],
)
def test_impossible_rows_are_refused(forged: RequestRow) -> None:
    result, rows = live_result(forged, COLD)
    assert judge(result, rows, None, GateRequest(allow_missing=True)).failures


def test_a_plan_from_another_tenant_fails_whatever_is_allowed() -> None:
    leak = replace(ROW, item_id="c", transform="cross_tenant", negative_control=True, backend_confirmed_blocks=0)
    result, rows = live_result(leak)
    failures = judge(result, rows, None, GateRequest(allow_missing=True)).failures
    assert failures == [
        "negative_control_semantic_eligible_block_rate is 0.6 (6 of 10), and must be zero",
        "cross_tenant_planned_requests is 1 (1 of 1), and must be zero; c first",
    ]
    result, rows = live_result(replace(leak, plan=COLD.plan))
    assert judge(result, rows, None, GateRequest()).passed


ZERO = [
    "unverified_planned_token_rate",
    "changed_token_planned_rate",
    "negative_control_semantic_eligible_block_rate",
    "cross_tenant_planned_requests",
    "negative_control_backend_confirmed_rate",
]


def test_everything_that_must_be_zero_is_judged_unasked_and_named() -> None:
    other_tenant = replace(COLD, item_id="c", transform="cross_tenant")
    edited = replace(ROW, item_id="e", changed_tokens=5, changed_planned_tokens=0)
    result, rows = live_result(ROW, COLD, other_tenant, edited)
    found = judge(result, rows, None, GateRequest())
    assert found.passed
    assert found.checked == ZERO
    assert [found.observed[name] for name in ZERO] == [0] * 5


def test_what_must_be_zero_and_was_not_measured_is_not_called_checked() -> None:
    result, rows = live_result(replace(ROW, plan=None, backend_confirmed_blocks=None))
    found = judge(result, rows, None, GateRequest())
    assert found.passed
    assert found.checked == []
    assert [found.observed[name] for name in ZERO] == [None] * 5


@pytest.mark.parametrize(
    ("metric", "bad"),
    [
        ("changed_token_planned_rate", replace(ROW, changed_tokens=5, changed_planned_tokens=1)),
        (
            "negative_control_semantic_eligible_block_rate",
            replace(COLD, plan=replace(PLAN, candidate_blocks=1, eligible_blocks=1, planned_tokens=64)),
        ),
        ("unverified_planned_token_rate", replace(ROW, plan=replace(PLAN, unverified_tokens=1))),
    ],
)
def test_a_figure_that_must_be_zero_fails_whatever_is_allowed(metric: str, bad: RequestRow) -> None:
    result, rows = live_result(bad)
    found = judge(result, rows, None, GateRequest(allow_missing=True))
    assert any(failure.startswith(metric) and "must be zero" in failure for failure in found.failures)
    assert metric in found.checked


def test_an_offline_result_cannot_prove_materialized_reuse() -> None:
    row = replace(ROW, backend_confirmed_blocks=None, route_outcome=None, quality_pass=None)
    result = json.loads(
        json.dumps(assemble(RunFacts("offline", Evidence.OFFLINE, "m", "0" * 64, {"block_size": 16}), [row]))
    )
    asked = GateRequest(require_materialized_reuse=True, allow_missing=True)
    assert judge(result, [row], ENGINE, asked).failures == [
        "require_materialized_reuse: the result's evidence is 'offline', and only a live run can show reuse"
    ]


@pytest.mark.parametrize(
    ("items", "request_id", "joins"),
    [
        (("a", "b"), "a", True),
        (("a", "b"), "chatcmpl-a", True),
        (("a", "b"), "cmpl-a-0", True),
        (("a", "b"), "a_12", True),
        (("a-1", "b"), "a-1", True),
        (("a", "a-1"), "a-1", True),
        (("a", "a-1"), "chatcmpl-a-1", False),
        (("a", "b"), "r1", False),
        (("a", "b"), "xa", False),
        (("a", "b"), "a-0-0", False),
    ],
)
def test_joined_requests_must_be_requests_of_the_result(items: tuple[str, ...], request_id: str, joins: bool) -> None:
    result, rows = live_result(*(replace(ROW, item_id=item) for item in items))
    found = judge(
        result,
        rows,
        replace(ENGINE, joined_requests=(request_id,)),
        GateRequest(require_materialized_reuse=True),
    )
    assert found.passed is joins
    assert found.observed["joined_requests"] == int(joins)
    if not joins:
        assert "of this result" in found.failures[0]


def test_rows_cannot_be_counted_twice() -> None:
    result, rows = live_result(ROW, ROW)
    assert "an item has two rows" in judge(result, rows, None, GateRequest()).failures


def test_results_are_read_strictly(tmp_path: Path) -> None:
    result, rows = live_result()
    path = tmp_path / "r.json"
    write_result(path, result)
    assert read_result(path) == (result, rows)
    changes: tuple[dict[str, Any], ...] = (
        {"result_version": "sembench.result.v1"},
        {"surprise": 1},
        {"requests": {}},
        {"requests": [{"item_id": 1}]},
    )
    for change in changes:
        path.write_text(json.dumps({**result, **change}))
        with pytest.raises(ContractError):
            read_result(path)
    path.write_text("[]")
    with pytest.raises(ContractError, match="not a JSON object"):
        read_result(path)
