from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sembase.errors import ContractError
from sembench.gates.calibration import NoiseFloor, read_noise_floor
from sembench.gates.engine_summary import EngineEvidence, Load, read_engine_summaries
from sembench.gates.judge import judge
from sembench.gates.other_run import OtherRun
from sembench.gates.request import GateRequest
from sembench.gates.request_ids import carries_nonce
from sembench.gates.verdict import Measured, Verdict
from sembench.metrics.rows import ArmRow, BackendRow, PairRow, PlanRow, RequestRow
from sembench.paired import median_interval
from sembench.result import RunFacts, assemble, read_result, write_result
from sembench.workload.seeded import Draws
from semblend.contract import Evidence

PLAN = PlanRow(
    candidate_blocks=8,
    eligible_blocks=6,
    planned_tokens=140,
    unverified_tokens=0,
    runs=2,
    donors=1,
    discoveries=0,
    decline_reason=None,
    mean_context_share=0.5,
    plan_ms=1.0,
)
ROW = RequestRow(
    item_id="a",
    dataset="d",
    source_id="s",
    transform="instruction_variant",
    negative_control=False,
    tenant="t",
    stream_id=None,
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
    cold=ArmRow(
        request_id="cold.a",
        status="ok",
        ttft_ms=140.0,
        total_ms=200.0,
        prompt_tokens=165,
        completion_tokens=8,
        cached_tokens=0,
        contaminated=False,
        text="x",
        token_recall=1.0,
    ),
    warm=ArmRow(
        request_id="a",
        status="ok",
        ttft_ms=100.0,
        total_ms=160.0,
        prompt_tokens=165,
        completion_tokens=8,
        cached_tokens=70,
        contaminated=None,
        text="x",
        token_recall=1.0,
    ),
    pair=PairRow(
        warm_first=True, mean_kl=0.03, worst_kl=0.04, compared_positions=8, agreed_tokens=8, answer_flip=False
    ),
    backend=BackendRow(
        engine_request_id="chatcmpl-a-0a1b2c3d",
        outcome="backend_materialized_reuse",
        found_tokens=80,
        advertised_tokens=80,
        boundary=0,
        reused_tokens=70,
        computed_tokens=10,
        runs=1,
    ),
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
    cold=ArmRow(
        request_id="cold.b",
        status="ok",
        ttft_ms=102.0,
        total_ms=200.0,
        prompt_tokens=165,
        completion_tokens=8,
        cached_tokens=0,
        contaminated=False,
        text="x",
        token_recall=1.0,
    ),
    warm=ArmRow(
        request_id="b",
        status="ok",
        ttft_ms=100.0,
        total_ms=160.0,
        prompt_tokens=165,
        completion_tokens=8,
        cached_tokens=0,
        contaminated=None,
        text="x",
        token_recall=1.0,
    ),
    pair=PairRow(warm_first=False, mean_kl=0.0, worst_kl=0.0, compared_positions=8, agreed_tokens=8, answer_flip=False),
    backend=BackendRow(
        engine_request_id="b",
        outcome="cold_fallback",
        found_tokens=0,
        advertised_tokens=0,
        boundary=None,
        reused_tokens=0,
        decline_reason="no_candidate",
    ),
)
ENGINE_ID = "chatcmpl-a-0a1b2c3d"
ENGINE = EngineEvidence(3, 70, 9, 2, 0, (ENGINE_ID,), True, {ENGINE_ID: Load(3, 70, 9)})
CONFIG = {
    "block_size": 16,
    "recipient_resets": 1,
    "quality_threshold": 0.6,
    "model": "a",
    "endpoint": "chat",
    "recipient_max_tokens": 24,
    "top_logprobs": 5,
}
FLOOR = NoiseFloor(0.011, 1.39, CONFIG, "0" * 64, {"name": "vllm", "version": "1"})


def loads(tokens: dict[str, int | None]) -> dict[str, Load]:
    return {name: Load(1, count) for name, count in tokens.items()}


def named(row: RequestRow, item_id: str, **changes: Any) -> RequestRow:
    """The same row of another item: its arms and its backend's word carry the item's id."""
    assert row.cold is not None
    assert row.warm is not None
    assert row.backend is not None
    return replace(
        row,
        item_id=item_id,
        cold=replace(row.cold, request_id=f"cold.{item_id}"),
        warm=replace(row.warm, request_id=item_id),
        backend=replace(row.backend, engine_request_id=item_id),
        **changes,
    )


def leaking(row: RequestRow, tokens: int) -> RequestRow:
    assert row.warm is not None
    backend = BackendRow(
        engine_request_id=row.item_id,
        outcome="backend_materialized_reuse",
        found_tokens=tokens,
        advertised_tokens=tokens,
        boundary=0,
        reused_tokens=tokens,
        computed_tokens=0,
        runs=1,
    )
    warm = replace(row.warm, cached_tokens=tokens)
    return replace(row, warm=warm, backend=backend, backend_confirmed_blocks=tokens // 16)


def live_result(*rows: RequestRow) -> tuple[dict[str, Any], list[RequestRow]]:
    engine = {"name": "vllm", "version": "1", "model": "a"}
    facts = RunFacts(
        kind="live",
        evidence=Evidence.MEASURED_LIVE,
        manifest_name="m.jsonl",
        manifest_digest="0" * 64,
        config=CONFIG,
        seed=3,
        engine=engine,
    )
    chosen = list(rows) or [ROW, COLD]
    return json.loads(json.dumps(assemble(facts, chosen))), chosen


def verdict(request: GateRequest, engine: EngineEvidence | None = ENGINE, **options: Any) -> Verdict:
    result, rows = live_result(*options.pop("rows", ()))
    return judge(result, rows, engine, request, **options)


MET: list[tuple[str, float, float]] = [
    ("min_quality_pass_rate", 1.0, 1.0 + 1e-6),
    ("min_semantic_placement_rate", 0.5, 0.51),
    ("min_backend_confirmed_block_rate", 0.2, 0.21),
    ("min_semantic_eligible_lift", 0.25, 0.26),
    ("min_any_position_token_rate", 0.45, 0.46),
    ("min_materialization_events", 3, 4),
    ("min_materialized_tokens", 70, 71),
    ("min_materialized_units", 9, 10),
    ("min_blended_ttft_speedup", 1.4, 1.41),
    ("max_negative_control_speedup_deviation", 0.021, 0.019),
    ("max_warm_vs_cold_kl", 0.03, 0.029),
    ("max_worst_kl", 0.04, 0.039),
    ("max_answer_flip_rate", 0.0, -0.1),
    ("min_identical_text_rate", 1.0, 1.1),
]


@pytest.mark.parametrize(("gate", "met", "missed"), MET)
def test_each_limit_holds_on_its_own_side(gate: str, met: float, missed: float) -> None:
    passed = verdict(GateRequest.of(**{gate: met}))
    assert passed.failures == []
    failed = verdict(GateRequest.of(**{gate: missed}))
    assert failed.failures
    assert all(failure.startswith(gate) for failure in failed.failures)
    assert {judged.gate for judged in failed.gates if not judged.passed} == {gate}


@pytest.mark.parametrize("gate", [gate for gate, _, _ in MET])
def test_a_requested_gate_without_its_metric_fails(gate: str) -> None:
    """Even at a limit of 0, which 0 would meet: None is not 0."""
    bare = replace(
        ROW,
        plan=None,
        any_position_tokens=None,
        backend_confirmed_blocks=None,
        backend=None,
        route_outcome=None,
        quality_pass=None,
        cold=None,
        pair=None,
    )
    result, rows = live_result(bare)
    request = GateRequest.of(**{gate: 0})
    assert gate in request.requested
    refused = judge(result, rows, None, request)
    assert len(refused.failures) == 1
    assert "not measured" in refused.failures[0]
    assert len(refused.missing) == 1
    allowed = judge(result, rows, None, replace(request, allow_missing=True))
    assert allowed.failures == []
    assert len(allowed.missing) == 1


def test_negative_controls_are_always_judged() -> None:
    result, rows = live_result(ROW, leaking(COLD, 20))
    assert judge(result, rows, None, GateRequest.of()).failures == [
        "max_negative_control_confirmed_rate: negative_control_backend_confirmed_rate is 0.1 (1 of 10, n = 1), "
        "wanted at most 0.0",
        "must_be_zero: negative_control_confirmed_reuse_rate is 1 (1 of 1, n = 1), wanted 0",
        "must_be_zero: negative_control_cached_requests is 1 (1 of 1, n = 1), wanted 0; b first",
    ]
    assert judge(result, rows, None, GateRequest.of(max_negative_control_confirmed_rate=0.1)).passed
    assert judge(result, rows, None, GateRequest.of(allow_missing=True)).failures


def test_reuse_of_less_than_a_block_is_reuse() -> None:
    result, rows = live_result(ROW, leaking(COLD, 10))
    assert judge(result, rows, None, GateRequest.of()).failures == [
        "must_be_zero: negative_control_confirmed_reuse_rate is 1 (1 of 1, n = 1), wanted 0"
    ]


def test_an_unmeasured_negative_rate_fails_only_if_asked_for() -> None:
    result, rows = live_result(ROW)
    assert judge(result, rows, None, GateRequest.of()).passed
    asked = judge(result, rows, None, GateRequest.of(max_negative_control_confirmed_rate=0.0))
    assert "not measured" in asked.failures[0]


def contaminated(row: RequestRow) -> RequestRow:
    assert row.cold is not None
    return replace(row, cold=replace(row.cold, cached_tokens=17, contaminated=True))


def test_contamination() -> None:
    asked = GateRequest.of(require_contamination_check=True, max_contaminated_pair_rate=1.0)
    assert verdict(asked).passed
    found = verdict(asked, rows=(contaminated(ROW), COLD))
    assert found.passed
    assert (found.observed["clean_pairs"], found.observed["flush_contaminated_pairs"]) == (1, 1)
    assert found.observed["blended_ttft_speedup_n"] == 0
    assert verdict(asked, rows=(contaminated(ROW), contaminated(COLD))).failures == [
        "require_contamination_check: there are no clean pairs (0 failed, 2 contaminated of 2)"
    ]
    assert ROW.cold is not None
    unchecked = replace(ROW, cold=replace(ROW.cold, cached_tokens=None, contaminated=None))
    assert verdict(asked, rows=(unchecked, COLD)).failures == [
        "require_contamination_check: contamination_checked_pairs is 1 (1 of 2, n = 2), "
        "wanted all 2 pairs with two successful arms"
    ]
    alone = (replace(ROW, cold=None, pair=None),)
    asked = GateRequest.of(require_contamination_check=True)
    assert "holds no pairs" in verdict(asked, rows=alone).failures[0]
    assert verdict(replace(asked, allow_missing=True), rows=alone).passed


def test_a_failed_pair_is_neither_clean_nor_unchecked() -> None:
    assert ROW.warm is not None
    failed = replace(ROW, warm=replace(ROW.warm, status="timeout"), pair=PairRow(warm_first=True), quality_pass=None)
    found = verdict(GateRequest.of(require_contamination_check=True, max_failed_pair_rate=1.0), rows=(failed, COLD))
    assert found.passed
    assert (found.observed["pairs"], found.observed["failed_pairs"], found.observed["clean_pairs"]) == (2, 1, 1)
    limited = verdict(GateRequest.of(max_failed_pair_rate=0.4), rows=(failed, COLD))
    assert limited.failures == ["max_failed_pair_rate: failed_pair_rate is 0.5 (1 of 2, n = 2), wanted at most 0.4"]
    assert verdict(GateRequest.of(max_failed_pair_rate=0.5), rows=(failed, COLD)).passed


def test_lost_pairs_are_limited_unasked() -> None:
    assert ROW.warm is not None
    failed = replace(ROW, warm=replace(ROW.warm, status="timeout"), pair=PairRow(warm_first=True), quality_pass=None)
    assert verdict(GateRequest.of(allow_missing=True), rows=(failed, COLD)).failures == [
        "max_failed_pair_rate: failed_pair_rate is 0.5 (1 of 2, n = 2), wanted at most 0.05"
    ]
    assert verdict(GateRequest.of(), rows=(contaminated(ROW), COLD)).failures == [
        "max_contaminated_pair_rate: contaminated_pair_rate is 0.5 (1 of 2, n = 2), wanted at most 0.05"
    ]
    unpaired = verdict(GateRequest.of(max_contaminated_pair_rate=0.5), rows=(replace(ROW, cold=None, pair=None),))
    assert "not measured" in unpaired.failures[0]


def test_the_noise_floor_moves_the_kl_limit() -> None:
    asked = GateRequest.of(max_warm_vs_cold_kl=0.02)
    assert not verdict(asked).passed
    assert verdict(asked, noise_floor=FLOOR).passed
    assert not verdict(asked, noise_floor=replace(FLOOR, mean_kl=0.009)).passed


def test_a_floor_above_the_limit_shows_nothing() -> None:
    asked = GateRequest.of(max_warm_vs_cold_kl=0.02)
    assert verdict(asked, noise_floor=replace(FLOOR, mean_kl=50.0)).failures == [
        "max_warm_vs_cold_kl: two cold runs already differ by 50, more than the limit 0.02"
    ]


def test_a_speedup_within_the_spread_of_two_cold_runs_is_none() -> None:
    asked = GateRequest.of(min_blended_ttft_speedup=1.1)
    assert verdict(asked, noise_floor=FLOOR).passed
    refused = verdict(asked, noise_floor=replace(FLOOR, ttft_ratio_high=1.4))
    assert "two cold runs in the calibration already differ by up to 1.4" in refused.failures[0]


def test_what_a_floor_did_not_measure_is_missing() -> None:
    asked = GateRequest.of(min_blended_ttft_speedup=1.1, max_warm_vs_cold_kl=0.05)
    bare = replace(FLOOR, mean_kl=None, ttft_ratio_high=None)
    assert verdict(asked, noise_floor=bare).missing == ["mean_kl_topk", "ttft_ratio_median_ci95"]
    assert len(verdict(asked, noise_floor=bare).failures) == 2
    assert verdict(replace(asked, allow_missing=True), noise_floor=bare).passed
    assert verdict(GateRequest.of(), noise_floor=bare).passed


def test_a_noise_floor_of_another_run_is_no_floor() -> None:
    asked = GateRequest.of(max_warm_vs_cold_kl=0.02)
    config = {**CONFIG, "model": "b", "top_logprobs": 20, "seed": 8}
    other = replace(FLOOR, config=config, engine={"name": "vllm", "version": "2"}, manifest_digest="1" * 64)
    (failure,) = verdict(asked, noise_floor=other).failures
    assert failure.startswith(
        "noise_floor_calibration: the calibration is from a different run: model 'b', not 'a'; top_logprobs 20"
    )
    assert f"manifest_digest '{'1' * 64}'" in failure
    assert "engine version '2', not '1'" in failure
    anonymous = verdict(asked, noise_floor=NoiseFloor(0.011)).failures
    settings = "model, endpoint, recipient_max_tokens, top_logprobs"
    assert f"noise_floor_calibration: the calibration does not record {settings}" in anonymous


def test_quality_without_reuse_proves_nothing() -> None:
    asked = GateRequest.of(min_quality_pass_rate=0.5)
    cold = named(COLD, "c", negative_control=False, transform="rag_reorder")
    refused = verdict(asked, None, rows=(cold,))
    assert len(refused.failures) == 1
    assert "no scored answer has confirmed reuse" in refused.failures[0]
    assert refused.missing == ["reused_quality_pass_rate"]
    assert verdict(replace(asked, allow_missing=True), None, rows=(cold,)).passed


def test_quality_is_judged_where_it_could_have_suffered() -> None:
    assert ROW.warm is not None
    bad = replace(ROW, quality_pass=False, warm=replace(ROW.warm, token_recall=0.5))
    good = [named(COLD, name, negative_control=False) for name in ("c", "d", "e", "f")]
    found = verdict(GateRequest.of(min_quality_pass_rate=0.8), rows=(bad, *good))
    assert found.failures == [
        "min_quality_pass_rate: reused_quality_pass_rate is 0 (0 of 1, n = 1), wanted at least 0.8"
    ]


def many(ratios: list[float], **changes: Any) -> list[RequestRow]:
    """One pair per ratio."""
    rows = [named(ROW, f"{changes.get('transform', 'p')}{number}", **changes) for number in range(len(ratios))]
    return [
        replace(row, cold=replace(row.cold, ttft_ms=100.0 * ratio, total_ms=1e4))
        for row, ratio in zip(rows, ratios, strict=True)
        if row.cold is not None
    ]


def test_the_interval_is_judged_on_request() -> None:
    rows = [COLD, *many([1.1, 1.2, 1.3, 1.5, 1.5, 1.5, 1.6, 1.7])]
    asked = GateRequest.of(min_blended_ttft_speedup=1.45)
    by_median = verdict(asked, None, rows=rows)
    assert by_median.passed
    (gate,) = (gate for gate in by_median.gates if gate.gate == "min_blended_ttft_speedup")
    assert gate.value == gate.judged == 1.5
    by_interval = verdict(replace(asked, judge_interval=True), None, rows=rows)
    assert len(by_interval.failures) == 1
    assert "judged by" in by_interval.failures[0]
    (gate,) = (gate for gate in by_interval.gates if gate.gate == "min_blended_ttft_speedup")
    assert gate.ci95 is not None
    assert gate.judged == gate.ci95[0] < 1.45
    few = verdict(replace(asked, judge_interval=True), None, rows=[COLD, *rows[4:9]])
    assert "at least 6 pairs are required" in few.failures[0]
    assert few.observed["blended_ttft_speedup_median"] == 1.5


@pytest.mark.parametrize(
    ("ratios", "holds"), [([0.97, 0.98, 1.0, 1.0, 1.01, 1.02], True), ([0.8] * 3 + [1.0] * 4, False)]
)
def test_the_farther_end_of_the_negatives_interval_is_judged(ratios: list[float], holds: bool) -> None:
    asked = GateRequest.of(max_negative_control_speedup_deviation=0.05)
    nothing = replace(COLD.backend or BackendRow(engine_request_id="b", outcome="cold_fallback"))
    rows = [
        replace(
            row,
            backend=replace(nothing, engine_request_id=row.item_id),
            backend_confirmed_blocks=0,
            plan=COLD.plan,
            warm=replace(row.warm, cached_tokens=0),
        )
        for row in many(ratios, negative_control=True)
        if row.warm is not None
    ]
    assert verdict(asked, None, rows=rows).passed
    assert verdict(replace(asked, judge_interval=True), None, rows=rows).passed is holds


def test_min_n_binds_requested_gates_only() -> None:
    few = verdict(GateRequest.of(min_blended_ttft_speedup=1.0, min_n=2))
    assert few.failures == ["min_blended_ttft_speedup: blended_ttft_speedup_median has n = 1, but --min-n requires 2"]
    assert verdict(GateRequest.of(min_n=50)).passed


def test_a_figure_is_printed_with_all_it_rests_on() -> None:
    assert str(Measured(None)) == "not measured"
    assert str(Measured(1.5)) == "1.5"
    assert str(Measured(0.5, 4, 2, 4, (0.25, 0.75))) == "0.5 (2 of 4, 95 % interval 0.25 to 0.75, n = 4)"


def calibration(**changes: Any) -> dict[str, Any]:
    """Eight prompts read twice; the second reading is a tenth slower, or the first, as the calibration's draw wants."""
    readings = [
        {
            "item_id": f"i{number}",
            **{f"{arm}_status": "ok" for arm in ("first", "second")},
            **{f"{arm}_cached_tokens": 0 for arm in ("first", "second")},
            "first_ttft_ms": 100.0,
            "second_ttft_ms": 100.0 + number,
            "mean_kl": 0.25 * (number % 2),
        }
        for number in range(8)
    ]
    ratios = [
        1 / ratio if Draws(3, f"i{number}", "ratio").uniform() >= 0.5 else ratio
        for number, ratio in ((number, 100.0 / (100.0 + number)) for number in range(8))
    ]
    return {
        "calibration_version": "sembench.calibration.v1",
        "config": CONFIG,
        "engine": {"name": "vllm", "version": "1", "model": "a"},
        "manifest_digest": "0" * 64,
        "seed": 3,
        "mean_kl_topk": 0.125,
        "ttft_ratio_median_ci95": median_interval(ratios, 3),
        "readings": readings,
        **changes,
    }


def test_the_figures_of_a_calibration_follow_from_its_readings(tmp_path: Path) -> None:
    path = tmp_path / "c.json"

    def problems(**changes: Any) -> list[str]:
        path.write_text(json.dumps(calibration(**changes)))
        return read_noise_floor(path).mismatches(live_result()[0])

    assert problems() == []
    assert read_noise_floor(path).mean_kl == 0.125
    assert problems(mean_kl_topk=50.0) == ["mean_kl_topk is 50.0, but its readings give 0.125"]
    assert "ttft_ratio_median_ci95 is None" in problems(ttft_ratio_median_ci95=None)[0]
    assert problems(readings=[]) == ["the calibration holds no readings from which its figures could be recomputed"]
    assert "does not record model" in problems(config={"block_size": 16})[0]
    spoilt = [{**reading, "first_cached_tokens": 17} for reading in calibration()["readings"]]
    nothing = problems(readings=spoilt)
    assert "mean_kl_topk is 0.125, but its readings give None" in nothing
    failed = [{**reading, "second_status": "timeout"} for reading in calibration()["readings"]]
    assert problems(readings=failed) == nothing


def test_calibrations_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"calibration_version": "sembench.calibration.v1"}))
    assert read_noise_floor(path).mean_kl is None
    for content in (
        "{",
        "[]",
        '{"mean_kl_topk": 0.5}',
        '{"calibration_version": "sembench.calibration.v1", "mean_kl_topk": -1}',
        '{"calibration_version": "sembench.calibration.v1", "mean_kl_topk": Infinity}',
        '{"calibration_version": "sembench.calibration.v1", "ttft_ratio_median_ci95": 1.1}',
        '{"calibration_version": "sembench.calibration.v1", "ttft_ratio_median_ci95": [1, "2"]}',
    ):
        path.write_text(content)
        with pytest.raises(ContractError):
            read_noise_floor(path)


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
    assert evidence == EngineEvidence(1, 64, None, 2, 1, ("r2",), False, {"r2": Load(1, 64)})


def test_phases_of_a_load_add_up_and_files_do_not(tmp_path: Path) -> None:
    """A log and an event stream may both tell of the same load."""
    phases = [event("materialized", "r1", tokens=64), event("materialized", "r1", tokens=32)]
    silent = [event("materialized", "r2"), event("materialized", "r2", tokens=5)]
    log = summary(tmp_path, "log", events=[*phases, *silent])
    stream = summary(tmp_path, "stream", events=[event("materialized", "r1", tokens=80)])
    for files in ([log, stream], [stream, log]):
        assert read_engine_summaries(files).loads == {"r1": Load(2, 96), "r2": Load(2)}


def test_a_list_that_was_cut_says_so(tmp_path: Path) -> None:
    path = summary(tmp_path, "s", events=[{"event": "log_read", "events_left_out": 7}, event("materialized", "i0")])
    evidence = read_engine_summaries([path])
    assert evidence.events_left_out == 7
    found = verdict(GateRequest.of(require_joined_evidence=True), evidence, rows=reused_rows(64, 32))
    assert "the summaries dropped 7 events" in found.failures[0]


def reused_rows(*tokens: int) -> list[RequestRow]:
    return [leaking(named(ROW, f"i{number}"), count) for number, count in enumerate(tokens)]


def test_every_confirmed_reuse_joins_an_event_of_its_own() -> None:
    asked = GateRequest.of(require_joined_evidence=True)
    rows = reused_rows(64, 32, 16)
    whole = {"chatcmpl-i0-0a1b2c3d": 64, "cmpl-i1-0-0a1b2c3d": 32, "i2": None}
    assert verdict(asked, replace(ENGINE, loads=loads(whole)), rows=rows).passed
    wrong: list[tuple[dict[str, int | None] | None, str]] = [
        ({"i0": 64, "i1": 32}, "joined_reuse_share is 0.666667 (2 of 3, n = 3)"),
        ({"i0": 64, "i1": 31, "i2": 16}, "i1 claims more tokens than the engine materialized for it"),
        ({"cold.i0": 64}, "i0 has no materialization in the engine's events"),
        (None, "no engine summary lists events with request ids"),
    ]
    for loaded, cause in wrong:
        refused = verdict(asked, replace(ENGINE, loads=None if loaded is None else loads(loaded)), rows=rows)
        assert any(cause in failure for failure in refused.failures), cause
    nothing = verdict(asked, rows=[COLD])
    assert "nothing to join" in nothing.failures[0]
    both = verdict(GateRequest.of(require_materialized_reuse=True), replace(ENGINE, joined_requests=("i0",)), rows=rows)
    assert "joined_reuse_share is 0 (0 of 3" in both.failures[0]


def test_engine_and_rows_may_not_contradict_each_other() -> None:
    cold = verdict(
        GateRequest.of(), replace(ENGINE, loads=loads({"chatcmpl-a-0a1b2c3d": 70, "chatcmpl-cold.b-0a1b2c3d": 16}))
    )
    assert cold.failures == [
        "cold_arms: the engine materialized donor KV for 1 cold requests (cold.b first), so they were not cold"
    ]
    leak = verdict(GateRequest.of(), replace(ENGINE, loads=loads({"b": 16})))
    assert leak.failures == [
        "engine_summary: the engine materialized donor KV for 1 requests whose rows report 0 reused tokens (b first): "
        "summary and result are from different runs",
        "must_be_zero: negative_control_materialized_requests is 1 (1 of 1, n = 1), wanted 0; b first",
    ]


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
    found = verdict(GateRequest.of(require_materialized_reuse=True), read_engine_summaries([path]))
    assert len(found.failures) == 3
    assert any("joined_requests is 0" in failure for failure in found.failures)
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
    assert not verdict(GateRequest.of(require_materialized_reuse=True), evidence).passed


def test_a_claim_of_reuse_is_checked_even_unasked(tmp_path: Path) -> None:
    path = summary(tmp_path, "s", materialized_semantic_kv_reuse=True)
    assert not verdict(GateRequest.of(), read_engine_summaries([path])).passed


def test_required_evidence_needs_a_summary() -> None:
    for gate in ("require_materialized_reuse", "require_no_engine_errors"):
        assert not verdict(GateRequest.of(**{gate: True}), None).passed
        assert verdict(GateRequest.of(**{gate: True, "allow_missing": True}), None).passed
        assert verdict(GateRequest.of(**{gate: True})).passed
    failing = replace(ENGINE, errors=1)
    assert not verdict(GateRequest.of(require_no_engine_errors=True), failing).passed


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
    (set_in("run", "seed"), 4),
    (set_in("config", "block_size"), 8),
    (set_in("config", "block_size"), None),
    (set_in("paired"), None),
    (set_in("paired"), {}),
    (set_in("aggregate", "requests"), 3),
    (set_in("aggregate", "decline_reasons"), {}),
    (set_in("aggregate", "my_speedup"), 9.0),
]


@pytest.mark.parametrize(("put", "value"), FABRICATIONS)
def test_fabricated_aggregates_are_refused(put: Callable[[dict[str, Any], Any], None], value: Any) -> None:
    result, rows = live_result()
    assert judge(result, rows, None, GateRequest.of()).passed
    forged = copy.deepcopy(result)
    put(forged, value)
    assert judge(forged, rows, None, GateRequest.of(allow_missing=True)).failures


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
        replace(ROW, pair=PairRow(warm_first=True, mean_kl=0.05, worst_kl=0.04, compared_positions=8)),
        replace(ROW, pair=PairRow(warm_first=True, mean_kl=0.03, worst_kl=None, compared_positions=8)),
        replace(ROW, pair=PairRow(warm_first=True, mean_kl=0.03, worst_kl=0.04, compared_positions=0)),
        replace(ROW, pair=PairRow(warm_first=True, mean_kl=0.03, worst_kl=0.04)),
        replace(ROW, cold=None),
        replace(ROW, warm=None),
        replace(ROW, backend_confirmed_blocks=None),
    ],
)
def test_impossible_rows_are_refused(forged: RequestRow) -> None:
    result, rows = live_result(forged, COLD)
    assert judge(result, rows, None, GateRequest.of(allow_missing=True)).failures


def test_a_plan_from_another_tenant_fails_whatever_is_allowed() -> None:
    leak = named(COLD, "c", transform="cross_tenant", plan=PLAN)
    result, rows = live_result(leak)
    failures = judge(result, rows, None, GateRequest.of(allow_missing=True)).failures
    assert failures == [
        "must_be_zero: negative_control_semantic_eligible_block_rate is 0.6 (6 of 10, n = 1), wanted 0",
        "must_be_zero: cross_tenant_planned_requests is 1 (1 of 1, n = 1), wanted 0; c first",
    ]
    result, rows = live_result(replace(leak, plan=COLD.plan))
    assert judge(result, rows, None, GateRequest.of()).passed


ZERO = [
    "unverified_planned_token_rate",
    "changed_token_planned_rate",
    "negative_control_semantic_eligible_block_rate",
    "cross_tenant_planned_requests",
    "negative_control_backend_confirmed_rate",
    "negative_control_confirmed_reuse_rate",
    "cross_tenant_reused_requests",
    "propagation_contamination_rate",
]


def test_everything_that_must_be_zero_is_judged_unasked_and_named() -> None:
    other_tenant = named(COLD, "c", transform="cross_tenant")
    edited = named(ROW, "e", changed_tokens=5, changed_planned_tokens=0)
    assert edited.backend is not None
    edited = replace(edited, backend=replace(edited.backend, propagated_tokens=0))
    result, rows = live_result(ROW, COLD, other_tenant, edited)
    found = judge(result, rows, None, GateRequest.of())
    assert found.passed
    assert found.checked == ZERO
    assert [found.observed[name] for name in ZERO] == [0] * 8


def test_what_must_be_zero_and_was_not_measured_is_not_called_checked() -> None:
    result, rows = live_result(replace(ROW, plan=None, backend_confirmed_blocks=None, backend=None))
    found = judge(result, rows, None, GateRequest.of())
    assert found.passed
    assert found.checked == []
    assert [found.observed[name] for name in ZERO] == [None] * 8


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
    found = judge(result, rows, None, GateRequest.of(allow_missing=True))
    assert any(failure.startswith(f"must_be_zero: {metric} is") for failure in found.failures)
    assert metric in found.checked


def test_an_offline_result_cannot_prove_materialized_reuse() -> None:
    row = replace(
        ROW,
        backend_confirmed_blocks=None,
        route_outcome=None,
        quality_pass=None,
        cold=None,
        warm=None,
        pair=None,
        backend=None,
    )
    result = json.loads(
        json.dumps(
            assemble(
                RunFacts(
                    kind="offline",
                    evidence=Evidence.OFFLINE,
                    manifest_name="m",
                    manifest_digest="0" * 64,
                    config={"block_size": 16},
                ),
                [row],
            )
        )
    )
    asked = GateRequest.of(require_materialized_reuse=True, allow_missing=True)
    assert judge(result, [row], ENGINE, asked).failures == [
        "require_materialized_reuse: the result's evidence is 'offline', but only a live run can show reuse"
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
        (("a", "b"), "cmpl-a-0-8d49e097", True),
        (("a", "b"), "chatcmpl-a-8d49e097", True),
        (("a", "b"), "chatcmpl-cold.a-8d49e097", False),
        (("a", "b"), "chatcmpl-a-8d49e09", False),
    ],
)
def test_joined_requests_must_be_requests_of_the_result(items: tuple[str, ...], request_id: str, joins: bool) -> None:
    result, rows = live_result(*(named(ROW, item) for item in items))
    every = {request_id: Load(1, 70), **loads(dict.fromkeys(items, 70))}
    evidence = replace(ENGINE, joined_requests=(request_id,), loads=every)
    found = judge(result, rows, evidence, GateRequest.of(require_materialized_reuse=True))
    refusals = [failure for failure in found.failures if failure.startswith("require_materialized_reuse")]
    assert bool(refusals) is not joins
    assert found.observed["joined_requests"] == int(joins)
    if not joins:
        assert "of this result" in refusals[0]


def test_a_unique_name_is_of_one_run_only() -> None:
    """The item is the same, the run is not: its engine would have called it otherwise."""
    asked = GateRequest.of(require_materialized_reuse=True)
    yesterday = "chatcmpl-a-ffffffff"
    found = verdict(asked, replace(ENGINE, joined_requests=(yesterday,), loads=loads({yesterday: 70})))
    assert found.observed["joined_requests"] == 0
    assert "none can be matched to a request of this result" in found.failures[0]
    assert verdict(GateRequest.of(min_materialized_tokens=1), replace(ENGINE, loads=loads({yesterday: 70}))).failures
    assert carries_nonce("cmpl-a-0-0a1b2c3d", "a")
    assert not carries_nonce("chatcmpl-a", "a")
    assert not carries_nonce("x-0a1b2c3d", "x-0a1b2c3d")


def test_a_load_that_was_undone_contradicts_nothing() -> None:
    missed = named(COLD, "c", negative_control=False, transform="rag_reorder")
    assert missed.backend is not None
    undone = replace(missed, backend=replace(missed.backend, outcome="backend_declined_reuse"))
    evidence = replace(ENGINE, loads=loads({ENGINE_ID: 70, "c": 16}))
    assert verdict(GateRequest.of(), evidence, rows=(ROW, COLD, undone)).passed
    assert "whose rows report 0" in verdict(GateRequest.of(), evidence, rows=(ROW, COLD, missed)).failures[0]


def test_the_same_summary_twice_is_refused(tmp_path: Path) -> None:
    content: dict[str, Any] = {"materialized_tokens": 64, "events": [event("materialized", "a", tokens=64)]}
    one, other = (summary(tmp_path, name, **content) for name in ("one", "other"))
    with pytest.raises(ContractError, match="the same summary as"):
        read_engine_summaries([one, other])
    idle = [summary(tmp_path, name, materialized_tokens=0, errors=[], events=[]) for name in ("idle", "quiet")]
    assert read_engine_summaries([one, *idle]).materialized_tokens == 64


def test_counts_are_of_this_results_requests_and_of_no_more_than_they_claim() -> None:
    rows = reused_rows(64, 32)
    evidence = replace(ENGINE, loads={"i0": Load(2, 128, 4), "i1": Load(1, 32), "stranger": Load(9, 900, 9)})
    asked = GateRequest.of(min_materialized_tokens=96, min_materialization_events=3, min_materialized_units=4)
    assert verdict(asked, evidence, rows=rows).passed
    more = GateRequest.of(min_materialized_tokens=97, min_materialization_events=4, min_materialized_units=5)
    assert len(verdict(more, evidence, rows=rows).failures) == 3
    unlisted = verdict(asked, replace(ENGINE, loads=None, joined_requests=None, claims_reuse=False), rows=rows)
    assert len(unlisted.missing) == 3
    assert verdict(GateRequest.of(min_materialized_tokens=0), replace(ENGINE, loads={}), rows=rows).passed


def stock_run(*rows: RequestRow, ttft_ms: float = 140.0, **run: Any) -> OtherRun:
    """The same requests on a server that has no connector: cold arms only."""
    alone = [
        replace(
            row,
            warm=None,
            pair=None,
            backend=None,
            backend_confirmed_blocks=None,
            route_outcome=None,
            plan=None,
            cold=replace(row.cold, ttft_ms=ttft_ms),
        )
        for row in rows or (ROW, COLD)
        if row.cold is not None
    ]
    result, _ = live_result(*alone)
    result["run"].update(run)
    return OtherRun(result, alone)


def test_a_connector_that_slows_its_misses_is_found() -> None:
    rows = [COLD, *many([2.0] * 7)]
    asked = GateRequest.of(max_cold_arm_overhead=1.05)
    even = verdict(asked, None, rows=rows[1:], stock=stock_run(*rows[1:], ttft_ms=200.0))
    assert even.failures == []
    assert (even.observed["cold_arm_overhead_median"], even.observed["cold_arm_overhead_n"]) == (1.0, 7)
    slow = verdict(asked, None, rows=rows[1:], stock=stock_run(*rows[1:], ttft_ms=100.0))
    assert slow.failures == [
        "max_cold_arm_overhead: cold_arm_overhead_median is 2 (95 % interval 2 to 2, n = 7), wanted at most 1.05"
    ]
    missing = verdict(asked, None, rows=rows)
    assert missing.missing == ["cold_arm_overhead_median"]
    assert not missing.passed
    few = verdict(replace(asked, judge_interval=True), None, stock=stock_run())
    assert "at least 6 pairs are required" in few.failures[0]


def test_a_stock_run_is_of_the_same_requests_and_has_no_connector() -> None:
    other = verdict(GateRequest.of(), None, stock=stock_run(manifest_digest="1" * 64))
    assert "stock_result: the stock result is from a different manifest" in other.failures[0]
    result, rows = live_result()
    assert "has a connector" in verdict(GateRequest.of(), None, stock=OtherRun(result, rows)).failures[0]
    unlike = stock_run()
    unlike.result["config"]["model"] = "b"
    assert verdict(GateRequest.of(), None, stock=unlike).failures == [
        "stock_result: the stock result differs in model: 'b', not 'a'"
    ]
    newer = stock_run()
    newer.result["engine"]["version"] = "2"
    assert verdict(GateRequest.of(), None, stock=newer).failures == [
        "stock_result: the stock result is from a different engine: version '2', not '1'"
    ]
    forged = stock_run()
    forged.result["aggregate"]["requests"] = 9
    assert "contradicts itself" in verdict(GateRequest.of(), None, stock=forged).failures[0]
    offline = verdict(GateRequest.of(), None, stock=stock_run(evidence="offline"))
    assert any("only a live run has cold arms" in failure for failure in offline.failures)


def test_quality_is_what_the_scores_say() -> None:
    assert ROW.warm is not None
    wrong = replace(ROW, warm=replace(ROW.warm, token_recall=0.0, exact_match=False))
    assert verdict(GateRequest.of(), rows=(wrong, COLD)).failures == [
        "row a: quality_pass is True with token_recall 0, exact_match 0, at a threshold of 0.6"
    ]
    unscored = replace(ROW, warm=replace(ROW.warm, token_recall=None))
    assert "with no score" in verdict(GateRequest.of(), rows=(unscored, COLD)).failures[0]
    option = replace(ROW, warm=replace(ROW.warm, token_recall=0.0, exact_match=True))
    assert verdict(GateRequest.of(), rows=(option, COLD)).passed
    assert verdict(GateRequest.of()).observed["quality_threshold"] == 0.6


@pytest.mark.parametrize(
    "alone",
    [
        {"route_outcome": "cold_route"},
        {"quality_pass": True},
        {"warm": ROW.warm},
        {"cold": ROW.cold},
        {"backend": None},
    ],
)
def test_one_live_field_is_too_many_offline(alone: dict[str, Any]) -> None:
    names = ("backend_confirmed_blocks", "route_outcome", "quality_pass", "cold", "warm", "pair", "backend")
    empty: dict[str, Any] = dict.fromkeys(names)
    row = replace(ROW, **{**empty, **alone})
    result = assemble(
        RunFacts(
            kind="offline",
            evidence=Evidence.OFFLINE,
            manifest_name="m",
            manifest_digest="0" * 64,
            config={"block_size": 16},
        ),
        [row],
    )
    refused = any(
        "only a live run can have" in failure for failure in judge(result, [row], None, GateRequest.of()).failures
    )
    assert refused is (list(alone.values()) != [None])


@pytest.mark.parametrize(("broken", "shown"), [(20, 20), (21, 21), (45, 21)])
def test_a_thousand_broken_rows_do_not_fill_the_screen(broken: int, shown: int) -> None:
    rows = [named(replace(ROW, any_position_tokens=166), f"i{number}") for number in range(broken)]
    failures = [failure for failure in verdict(GateRequest.of(), None, rows=rows).failures if "row" in failure]
    assert len(failures) == shown
    assert (f"and {broken - 20} more row failures" in failures) is (broken > 20)


@pytest.mark.parametrize(
    "compared",
    [
        PairRow(warm_first=True, mean_kl=0.0, worst_kl=0.0, compared_positions=4),
        PairRow(warm_first=True, answer_flip=False),
    ],
)
def test_an_answer_that_never_came_compares_with_nothing(compared: PairRow) -> None:
    assert ROW.warm is not None
    failed = replace(ROW, warm=replace(ROW.warm, status="timeout"), pair=compared, quality_pass=None)
    refused = verdict(GateRequest.of(max_failed_pair_rate=0.5), rows=(failed, COLD))
    assert refused.failures == ["row a: pair: answers were compared although an arm failed"]


def test_a_backend_row_speaks_of_a_warm_request_that_was_not_declined() -> None:
    alone = replace(ROW, warm=None, pair=None)
    refused = verdict(GateRequest.of(), rows=(alone, COLD))
    assert "row a: backend: there is no warm request" in refused.failures
    assert ROW.backend is not None
    both = replace(ROW, backend=replace(ROW.backend, decline_reason="stale"))
    assert verdict(GateRequest.of(), rows=(both, COLD)).failures == [
        "row a: backend: declined (stale), but has reused tokens"
    ]


def test_a_cold_run_alone_is_held_to_its_own_prompt() -> None:
    bare = replace(ROW, warm=None, pair=None, backend=None, backend_confirmed_blocks=None)
    assert verdict(GateRequest.of(), None, rows=(bare,)).passed
    assert bare.cold is not None
    longer = replace(bare, cold=replace(bare.cold, prompt_tokens=166))
    assert verdict(GateRequest.of(), None, rows=(longer,)).failures == [
        "row a: prompt_tokens is 165, but the server counted 166"
    ]


def test_blocks_without_a_block_size_are_at_most_tokens() -> None:
    row = replace(ROW, cold=None, pair=None, backend=None, backend_confirmed_blocks=None, total_blocks=166)
    result = assemble(
        RunFacts(kind="live", evidence=Evidence.MEASURED_LIVE, manifest_name="m", manifest_digest="0" * 64, config={}),
        [row],
    )
    assert judge(result, [row], None, GateRequest.of()).failures == ["row a: more blocks than tokens"]


def test_a_plan_may_cover_every_block() -> None:
    whole = replace(ROW, plan=replace(PLAN, candidate_blocks=10, eligible_blocks=10, planned_tokens=165))
    assert verdict(GateRequest.of(), rows=(whole, COLD)).passed


def test_a_gate_that_compares_nothing_is_listed_too() -> None:
    found = verdict(GateRequest.of(), replace(ENGINE, loads=loads({"cold.b": 16})))
    (gate,) = (gate for gate in found.gates_as_json() if gate["gate"] == "cold_arms")
    assert (gate["passed"], gate["value"]) == (False, None)


def test_rows_cannot_be_counted_twice() -> None:
    result, rows = live_result(ROW, ROW)
    assert "an item has more than one row" in judge(result, rows, None, GateRequest.of()).failures


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
        {"config": None},
        {"created_at_utc": float("nan")},
    )
    for change in changes:
        path.write_text(json.dumps({**result, **change}))
        with pytest.raises(ContractError):
            read_result(path)
    path.write_text("[]")
    with pytest.raises(ContractError, match="not a JSON object"):
        read_result(path)
