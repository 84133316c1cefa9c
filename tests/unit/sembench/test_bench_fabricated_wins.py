"""An honest paired run passes every gate; each way of making it look better than it was is refused, with its cause."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sembase.errors import ContractError
from sembench.cli.main import main
from sembench.gates.engine_summary import read_engine_summaries
from sembench.gates.judge import judge
from sembench.gates.request import GateRequest
from sembench.gates.verdict import Verdict
from sembench.manifest import WorkloadItem, manifest_digest, write_manifest
from sembench.metrics.rows import ArmRow, BackendRow, PairRow, RequestRow
from sembench.result import RunFacts, assemble, read_result, write_result
from semblend.contract import Evidence

BLOCK = 16
PROMPT = 640
REUSED = 480
GATES = GateRequest.of(
    min_quality_pass_rate=0.9,
    min_backend_confirmed_block_rate=0.3,
    min_materialization_events=10,
    min_materialized_tokens=5000,
    require_materialized_reuse=True,
    require_joined_evidence=True,
    require_no_engine_errors=True,
    min_blended_ttft_speedup=1.4,
    max_negative_control_speedup_deviation=0.05,
    max_negative_control_confirmed_rate=0.0,
    max_failed_pair_rate=0.05,
    require_contamination_check=True,
    max_contaminated_pair_rate=0.05,
    max_warm_vs_cold_kl=0.05,
    max_worst_kl=0.1,
    max_answer_flip_rate=0.0,
    min_identical_text_rate=0.9,
    judge_interval=True,
    min_n=6,
)


CHOICE = {"score": "choice", "choices": ["Paris", "Rome"], "stale_answer": "Rome"}
CONFIG = {"block_size": BLOCK, "recipient_resets": 1, "quality_threshold": 0.6, "top_logprobs": 5}


@dataclass
class Run:
    """Everything a judge sees. ``after`` edits the assembled result; rows are assembled as they are."""

    rows: list[RequestRow]
    summary: dict[str, Any]
    evidence: Evidence = Evidence.MEASURED_LIVE
    after: Callable[[dict[str, Any]], None] | None = None
    gates: GateRequest = field(default=GATES)
    config: dict[str, Any] = field(default_factory=dict)


def honest_row(number: int, transform: str, *, negative: bool, hit: bool, noise: random.Random) -> RequestRow:
    item = f"{number:016x}"
    cold_ms = 100.0 + 10.0 * noise.random()
    warm_ms = cold_ms * (0.5 if hit else 1.0) * (1.0 + 0.01 * (noise.random() - 0.5))
    reused = REUSED if hit else 0
    cold = ArmRow(
        request_id=f"cold.{item}",
        status="ok",
        ttft_ms=cold_ms,
        total_ms=cold_ms + 50,
        prompt_tokens=PROMPT,
        completion_tokens=16,
        cached_tokens=0,
        contaminated=False,
        text="Paris",
        token_recall=1.0,
        f1=1.0,
        rouge_l=1.0,
        exact_match=True,
        answer_read="Paris",
        answer_score=1.0,
        answer_right=True,
        answer_stale=False,
    )
    warm = ArmRow(
        request_id=item,
        status="ok",
        ttft_ms=warm_ms,
        total_ms=warm_ms + 50,
        prompt_tokens=PROMPT,
        completion_tokens=16,
        cached_tokens=reused,
        contaminated=None,
        text="Paris",
        token_recall=1.0,
        f1=1.0,
        rouge_l=1.0,
        exact_match=True,
        answer_read="Paris",
        answer_score=1.0,
        answer_right=True,
        answer_stale=False,
    )
    backend = BackendRow(
        engine_request_id=f"chatcmpl-{item}-0a1b2c3d",
        outcome="cold_fallback",
        found_tokens=0,
        advertised_tokens=0,
        boundary=None,
        reused_tokens=0,
        decline_reason="no_candidate",
    )
    if hit:
        outcome = "backend_materialized_reuse"
        backend = BackendRow(
            engine_request_id=backend.engine_request_id,
            outcome=outcome,
            found_tokens=500,
            advertised_tokens=520,
            boundary=0,
            reused_tokens=REUSED,
            computed_tokens=40,
            runs=2,
            decline_reason=None,
            faults=0,
            load_ms=3.0,
            compute_ms=9.0,
            propagated_tokens=0,
        )
    return RequestRow(
        item_id=item,
        dataset="d",
        source_id=f"s{number}",
        transform=transform,
        negative_control=negative,
        tenant="tenant-a",
        stream_id=None,
        prompt_tokens=PROMPT,
        total_blocks=PROMPT // BLOCK,
        backend_confirmed_blocks=reused // BLOCK,
        quality_pass=True,
        cold=cold,
        warm=warm,
        pair=PairRow(
            warm_first=number % 2 == 0,
            mean_kl=0.01 if hit else 0.0,
            worst_kl=0.02 if hit else 0.0,
            compared_positions=16,
            agreed_tokens=16,
            answer_flip=False,
        ),
        backend=backend,
    )


def honest_run() -> Run:
    """Twenty requests that could reuse, of which sixteen did, and eight negative controls that stayed cold."""
    noise = random.Random(4)
    kinds = [("instruction_variant", False)] * 12 + [("rag_reorder", False)] * 8
    kinds += [("negative_control", True)] * 6 + [("cross_tenant", True)] * 2
    rows = [
        honest_row(number, transform, negative=negative, hit=not negative and number % 5 != 0, noise=noise)
        for number, (transform, negative) in enumerate(kinds)
    ]
    return Run(rows, summary_of(rows))


def summary_of(rows: list[RequestRow]) -> dict[str, Any]:
    reported = [row.backend for row in rows if row.backend is not None and row.backend.reused_tokens]
    names = [backend.engine_request_id for backend in reported]
    return {
        "engine": "vllm",
        "semantic_hits": len(reported),
        "materialization_events": len(reported),
        "materialized_tokens": sum(backend.reused_tokens or 0 for backend in reported),
        "errors": [],
        "events": [{"event": "semantic_hit", "request_id": name} for name in names]
        + [{"event": "materialized", "request_id": name, "tokens": REUSED} for name in names],
    }


def assembled(run: Run, digest: str = "0" * 64) -> dict[str, Any]:
    facts = RunFacts(
        kind="live-gateway",
        evidence=run.evidence,
        manifest_name="m.jsonl",
        manifest_digest=digest,
        config={**CONFIG, **run.config},
        seed=7,
    )
    result: dict[str, Any] = json.loads(json.dumps(assemble(facts, run.rows)))
    if run.after is not None:
        run.after(result)
    return result


def judged(run: Run, tmp_path: Path) -> Verdict:
    result_file, summary_file = tmp_path / "r.json", tmp_path / "s.json"
    result_file.write_text(json.dumps(assembled(run)))
    summary_file.write_text(json.dumps(run.summary))
    result, rows = read_result(result_file)
    return judge(result, rows, read_engine_summaries([summary_file]), run.gates)


def change(run: Run, numbers: range | list[int], **parts: Any) -> None:
    """Replaces fields of rows: ``warm={"ttft_ms": 1.0}`` or ``quality_pass=None``."""
    for number in numbers:
        row = run.rows[number]
        new = {
            name: replace(getattr(row, name), **value) if isinstance(value, dict) else value
            for name, value in parts.items()
        }
        run.rows[number] = replace(row, **new)


HITS = [number for number in range(20) if number % 5]
MISSES = [0, 5, 10, 15]
NEGATIVES = list(range(20, 28))


def test_an_honest_run_passes_every_gate(tmp_path: Path) -> None:
    found = judged(honest_run(), tmp_path)
    assert found.failures == []
    assert found.missing == []
    asked = set(GATES.requested)
    assert asked <= {gate.gate for gate in found.gates}
    by_metric = {gate.metric: gate for gate in found.gates}
    speedup = by_metric["blended_ttft_speedup_median"]
    assert (speedup.n, speedup.min_n) == (20, 6)
    assert speedup.ci95 is not None
    assert speedup.judged == speedup.ci95[0] <= (speedup.value or 0)
    joined = by_metric["joined_reuse_share"]
    assert (joined.numerator, joined.denominator) == (16, 16)
    negatives = by_metric["negative_control_backend_confirmed_rate"]
    assert (negatives.value, negatives.numerator, negatives.denominator) == (0.0, 0, 8 * (PROMPT // BLOCK))
    assert found.observed["hit_only_ttft_speedup_n"] == 16
    assert found.observed["hit_only_ttft_speedup_median"] > found.observed["blended_ttft_speedup_median"]


Fabrication = Callable[[Run], None]
FABRICATIONS: dict[str, tuple[Fabrication, str]] = {}


def refused_because(cause: str) -> Callable[[Fabrication], Fabrication]:
    def keep(fabricate: Fabrication) -> Fabrication:
        FABRICATIONS[fabricate.__name__] = (fabricate, cause)
        return fabricate

    return keep


@refused_because("no materialization in the engine's events")
def hits_without_materialization(run: Run) -> None:
    run.summary["events"] = [event for event in run.summary["events"] if event["event"] == "semantic_hit"] + [
        event for event in run.summary["events"] if event["event"] == "materialized"
    ][:3]


@refused_because("joined_reuse_share is 0 (0 of 16")
def materialization_of_other_requests(run: Run) -> None:
    for event in run.summary["events"]:
        event["request_id"] = "chatcmpl-" + event["request_id"][9:25].replace("0", "f")


@refused_because("claims more tokens than the engine materialized")
def more_reused_than_materialized(run: Run) -> None:
    for event in run.summary["events"]:
        if event["event"] == "materialized":
            event["tokens"] = 100


@refused_because("belongs to another request")
def evidence_borrowed_from_another_request(run: Run) -> None:
    change(run, [1], backend={"engine_request_id": f"chatcmpl-{2:016x}"})


@refused_because("the cold arm was not cold")
def cached_tokens_in_unmarked_cold_arms(run: Run) -> None:
    change(run, NEGATIVES, cold={"cached_tokens": 320})


@refused_because("donor KV for 1 cold requests")
def donor_kv_in_a_cold_arm(run: Run) -> None:
    run.summary["events"].append({"event": "materialized", "request_id": f"chatcmpl-cold.{1:016x}", "tokens": 9})


@refused_because("the flag does not follow from the tokens")
def slow_pairs_thrown_out_as_contaminated(run: Run) -> None:
    change(run, MISSES, cold={"contaminated": True})


@refused_because("paired.clean_pairs is 28, but the rows give 24")
def contaminated_rows_kept(run: Run) -> None:
    honest = assembled(run)
    change(run, HITS[:4], cold={"cached_tokens": 320, "contaminated": True})
    run.after = lambda result: result.update(paired=honest["paired"])


@refused_because("contamination_checked_pairs is 24")
def unchecked_cold_arms(run: Run) -> None:
    change(run, HITS[:4], cold={"cached_tokens": None, "contaminated": None})


@refused_because("no scored answer has confirmed reuse")
def quality_with_zero_reuse(run: Run) -> None:
    _deny(run, HITS)
    run.summary = summary_of(run.rows)
    run.gates = GateRequest.of(min_quality_pass_rate=0.9)


@refused_because("no compared answer has confirmed reuse")
def divergence_with_zero_reuse(run: Run) -> None:
    change(run, range(28), backend=None, backend_confirmed_blocks=None)
    run.gates = GateRequest.of(max_warm_vs_cold_kl=0.05)


@refused_because("max_negative_control_speedup_deviation: negative_control_ttft_speedup_median is")
def negatives_that_sped_up(run: Run) -> None:
    change(run, NEGATIVES, cold={"ttft_ms": 130.0, "total_ms": 180.0})


@refused_because("negative controls sped up as much")
def everything_sped_up_alike(run: Run) -> None:
    """A slow cold arm: the deviation gate was not requested, and still the speedup does not come from reuse."""
    change(run, range(28), cold={"ttft_ms": 500.0, "total_ms": 600.0}, warm={"ttft_ms": 100.0})
    run.gates = GateRequest.of(min_blended_ttft_speedup=1.4)


@refused_because("aggregate.backend_confirmed_block_rate is 0.9, but the rows give")
def aggregate_edited(run: Run) -> None:
    run.after = lambda result: result["aggregate"].update(backend_confirmed_block_rate=0.9)


@refused_because("paired.blended_ttft_speedup_median is 3.5, but the rows give")
def paired_block_edited(run: Run) -> None:
    run.after = lambda result: result["paired"].update(blended_ttft_speedup_median=3.5)


@refused_because("paired.negative_control_ttft_speedup_n is missing")
def paired_figure_removed(run: Run) -> None:
    run.after = lambda result: result["paired"].pop("negative_control_ttft_speedup_n")


@refused_because("paired is None, but the rows give")
def paired_block_removed(run: Run) -> None:
    run.after = lambda result: result.update(paired=None)


@refused_because("paired.headline_speedup is 12.3, but the rows give no such figure")
def figure_invented(run: Run) -> None:
    run.after = lambda result: result["paired"].update(headline_speedup=12.3)


@refused_because("paired.blended_ttft_speedup_median is")
def hit_only_reported_as_blended(run: Run) -> None:
    def swap(result: dict[str, Any]) -> None:
        for name in ("median", "ci95", "n"):
            result["paired"][f"blended_ttft_speedup_{name}"] = result["paired"][f"hit_only_ttft_speedup_{name}"]

    run.after = swap


@refused_because("run.items is 28, but there are 24 rows")
def rows_dropped(run: Run) -> None:
    def drop(result: dict[str, Any]) -> None:
        result["requests"] = [row for number, row in enumerate(result["requests"]) if number not in MISSES]

    run.after = drop


@refused_because("an item has more than one row")
def rows_duplicated(run: Run) -> None:
    run.rows += [run.rows[1]] * 5


@refused_because("there is no backend row")
def confirmed_blocks_without_backend_row(run: Run) -> None:
    change(run, [1], backend=None)


@refused_because("but 480 reused tokens are 30 blocks")
def confirmed_blocks_rounded_up(run: Run) -> None:
    change(run, HITS, backend_confirmed_blocks=40)


@refused_because("max_warm_vs_cold_kl: reused_warm_vs_cold_mean_kl_topk is 4")
def plan_shifted_by_one_token(run: Run) -> None:
    """Wrong KV is as fast as right KV. Answers part at once, so few positions are compared."""
    change(
        run,
        HITS,
        pair={"mean_kl": 4.0, "worst_kl": 4.0, "compared_positions": 1, "agreed_tokens": 0, "answer_flip": True},
        warm={
            "text": "the the the",
            "token_recall": 0.0,
            "f1": 0.0,
            "rouge_l": 0.0,
            "exact_match": False,
            "answer_read": None,
            "answer_score": 0.0,
            "answer_right": False,
        },
        quality_pass=False,
    )


@refused_because("reused_warm_vs_cold_mean_kl_topk is 0.5")
def collapse_diluted_by_misses(run: Run) -> None:
    """Over all pairs the mean stays below the limit; over those that reused it does not."""
    change(run, HITS[:2], pair={"mean_kl": 0.5, "worst_kl": 0.6})
    _deny(run, HITS[2:])
    change(run, HITS[2:], pair={"mean_kl": 0.0, "worst_kl": 0.0})
    run.gates = GateRequest.of(max_warm_vs_cold_kl=0.05)


@refused_because("evidence is 'offline', but only a live run can have")
def offline_result_claiming_reuse(run: Run) -> None:
    run.evidence = Evidence.OFFLINE


@refused_because("rows have no server request")
def live_result_without_requests(run: Run) -> None:
    change(run, range(28), cold=None, warm=None, pair=None, backend=None, backend_confirmed_blocks=None)


@refused_because("'ttft_ms' is -5.0, but counts are not negative")
def negative_time(run: Run) -> None:
    change(run, [1], warm={"ttft_ms": -5.0})


@refused_because("NaN is not a number")
def time_that_is_no_number(run: Run) -> None:
    run.after = lambda result: result["requests"][1]["warm"].update(ttft_ms=float("nan"))


@refused_because("Infinity is not a number")
def endless_cold_time(run: Run) -> None:
    run.after = lambda result: result["requests"][1]["cold"].update(ttft_ms=float("inf"))


@refused_because("cached_tokens 700 of 640 prompt tokens")
def more_cached_than_prompt(run: Run) -> None:
    change(run, [1], warm={"cached_tokens": 700})


@refused_because("ttft_ms is 0, must be above 0")
def zero_ttft(run: Run) -> None:
    change(run, HITS, warm={"ttft_ms": 0.0})


@refused_because("after the end at")
def first_token_after_the_last(run: Run) -> None:
    change(run, [1], cold={"ttft_ms": 900.0})


@refused_because("not the same prompt")
def shorter_prompt_in_the_warm_arm(run: Run) -> None:
    change(run, HITS, warm={"prompt_tokens": 600})


@refused_because("but the server counted 640")
def denominator_made_smaller(run: Run) -> None:
    change(run, range(28), prompt_tokens=480, total_blocks=30)


@refused_because("total_blocks is 20, but 640 tokens are 40 blocks")
def fewer_blocks_than_the_prompt_has(run: Run) -> None:
    change(run, range(28), total_blocks=20)


@refused_because("reused 480 tokens, but the server reported 32 cached tokens")
def reuse_the_client_did_not_see(run: Run) -> None:
    change(run, HITS, warm={"cached_tokens": 32})


@refused_because("reused 480 of 100 advertised tokens")
def more_reused_than_advertised(run: Run) -> None:
    change(run, HITS, backend={"advertised_tokens": 100})


@refused_because("outcome is 'cold_fallback' with 480 reused tokens")
def reuse_with_the_outcome_of_a_miss(run: Run) -> None:
    change(run, HITS, backend={"outcome": "cold_fallback"})


@refused_because("f1 is 1.5, above 1")
def score_above_one(run: Run) -> None:
    change(run, [1], warm={"f1": 1.5})


@refused_because("figures of another request")
def arms_swapped(run: Run) -> None:
    row = run.rows[1]
    run.rows[1] = replace(row, cold=row.warm, warm=row.cold)


@refused_because("max_failed_pair_rate: failed_pair_rate is")
def slow_pairs_called_failed(run: Run) -> None:
    change(run, MISSES, warm={"status": "timeout"}, quality_pass=None, pair={"mean_kl": None, "worst_kl": None})
    change(run, MISSES, pair={"answer_flip": None})


@refused_because("quality was judged although the request ended with status 'timeout'")
def quality_of_a_failed_request(run: Run) -> None:
    change(run, [0], warm={"status": "timeout"})


@refused_because("negative_control_backend_confirmed_rate is 0.09375")
def negative_control_that_reused(run: Run) -> None:
    _leak(run, 20, REUSED)


@refused_because("negative_control_confirmed_reuse_rate is 0.125 (1 of 8")
def negative_control_that_reused_less_than_a_block(run: Run) -> None:
    _leak(run, 20, 10)


@refused_because("negative_control_materialized_requests is 0.125")
def negative_control_hidden_from_the_rows(run: Run) -> None:
    name = f"cmpl-{20:016x}-0-0a1b2c3d"
    run.summary["events"].append({"event": "materialized", "request_id": name, "tokens": 10})


@refused_because("cross_tenant_reused_requests is 1 (1 of 2")
def leak_between_tenants_called_positive(run: Run) -> None:
    _leak(run, 26, REUSED)
    change(run, [26, 27], negative_control=False)


@refused_because("propagation_contamination_rate is 0.0625 (1 of 16")
def loaded_kv_that_spread(run: Run) -> None:
    change(run, [1], backend={"propagated_tokens": 64})


@refused_because("require_no_engine_errors: errors is 1")
def errors_in_the_engine(run: Run) -> None:
    run.summary["errors"] = ["ERROR something"]


@refused_because("has n = 2, but --min-n requires 6")
def too_few_negatives(run: Run) -> None:
    run.rows = run.rows[:22]


@refused_because("no clean pair has confirmed reuse")
def speedup_with_zero_reuse(run: Run) -> None:
    _deny(run, HITS)
    run.summary = summary_of(run.rows)
    run.gates = GateRequest.of(min_blended_ttft_speedup=1.4)


@refused_because("pairs without reuse sped up too")
def fast_misses_behind_one_reuse(run: Run) -> None:
    _deny(run, HITS[1:])
    change(run, MISSES, warm={"ttft_ms": 50.0})
    run.summary = summary_of(run.rows)
    run.gates = GateRequest.of(min_blended_ttft_speedup=1.4)


@refused_because("pairs without reuse sped up too")
def few_fast_misses_behind_one_reuse(run: Run) -> None:
    fast_misses_behind_one_reuse(run)
    run.rows = [*run.rows[1:5], *run.rows[20:]]
    run.summary = summary_of(run.rows)


@refused_because("for 20 pairs the length of the exact prefix is unknown")
def stock_prefix_cache_as_reuse(run: Run) -> None:
    run.config = {"recipient_resets": 0}


@refused_because("none can be matched to a request of this result")
def summary_of_yesterday(run: Run) -> None:
    for event in run.summary["events"]:
        event["request_id"] = event["request_id"][:-8] + "ffffffff"


@refused_because("16 requests whose rows report 0 reused tokens")
def summary_against_rows(run: Run) -> None:
    _deny(run, HITS)
    run.gates = GateRequest.of(require_materialized_reuse=True)


@refused_because("no row has confirmed reuse, although the engine summaries report some")
def summary_beside_silent_rows(run: Run) -> None:
    change(run, range(28), backend=None, backend_confirmed_blocks=None)
    run.gates = GateRequest.of(require_materialized_reuse=True)


@refused_because("negative controls sped up too (negative_control_ttft_speedup_median is")
def negatives_that_sped_up_less(run: Run) -> None:
    """Less than the rest, and the deviation gate was not requested."""
    change(run, NEGATIVES, cold={"ttft_ms": 130.0, "total_ms": 180.0})
    run.gates = GateRequest.of(min_blended_ttft_speedup=1.4)


@refused_because("negative controls sped up too (negative_control_ttft_speedup_median is")
def few_negatives_that_sped_up(run: Run) -> None:
    negatives_that_sped_up_less(run)
    run.rows = run.rows[:23]


@refused_because("there are no negative controls to rule out other causes of a speedup")
def no_negatives(run: Run) -> None:
    run.rows = run.rows[:20]
    run.gates = GateRequest.of(min_blended_ttft_speedup=1.4)


@refused_because("max_contaminated_pair_rate: contaminated_pair_rate is 0.142857 (4 of 28")
def slow_pairs_contaminated(run: Run) -> None:
    change(run, MISSES, cold={"cached_tokens": 320, "contaminated": True})
    run.gates = GateRequest.of(min_blended_ttft_speedup=1.4)


@refused_because("the backend does not report whether 0000000000000014 reused KV")
def silent_negative_control(run: Run) -> None:
    change(run, [20], backend=None, backend_confirmed_blocks=None)


@refused_because("negative_control_cached_requests is 0.125")
def cached_tokens_in_a_negative_control(run: Run) -> None:
    change(run, [20], warm={"cached_tokens": 320})


@refused_because("3 engine events never reached the run")
def events_that_were_lost(run: Run) -> None:
    run.after = lambda result: result["run"].update(preparation={"missing_audit_events": 3})


@refused_because("3 engine events never reached the run")
def events_lost_before_merging(run: Run) -> None:
    part = {"run": {"preparation": {"missing_audit_events": 3}}}
    run.after = lambda result: result["run"].update(merged_from={"warm": part})


@refused_because("config.quality_threshold is 0.0, so passing says nothing about an answer")
def any_answer_is_good(run: Run) -> None:
    run.config = {"quality_threshold": 0.0}


@refused_because("quality_pass is True with token_recall 0, rouge_l 0, exact_match 0")
def quality_against_the_scores(run: Run) -> None:
    """In results of versions that did not mark answers by a score of their own."""
    unmarked = dict.fromkeys(("answer_read", "answer_score", "answer_right", "answer_stale"))
    change(run, HITS, warm={"token_recall": 0.0, "f1": 0.0, "rouge_l": 0.0, "exact_match": False, **unmarked})


@refused_because("quality_pass is True, but answer_right is False")
def quality_against_the_mark(run: Run) -> None:
    change(run, HITS, warm={"answer_score": 0.0, "answer_right": False})


@refused_because("answer_right with an answer_score of 0")
def right_without_a_score(run: Run) -> None:
    change(run, [1], warm={"answer_score": 0.0})


@refused_because("the answer is right and that of an earlier revision")
def right_and_stale(run: Run) -> None:
    change(run, [1], warm={"answer_stale": True})


@refused_because("materialized_tokens is 0, wanted at least 5000")
def counts_without_events(run: Run) -> None:
    run.summary["events"] = []
    run.gates = GateRequest.of(min_materialized_tokens=5000)


@refused_because("materialized_tokens is 7680, wanted at least 7681")
def loads_reported_twice(run: Run) -> None:
    run.summary["events"] *= 2
    run.gates = GateRequest.of(min_materialized_tokens=REUSED * 16 + 1)


@refused_because("materialized_tokens is 0, wanted at least 1 ")
def exact_retrievals_as_reuse(run: Run) -> None:
    for event in run.summary["events"]:
        event["event"] = "exact_retrieval"
    run.gates = GateRequest.of(min_materialized_tokens=1)


@refused_because("worst_transform_warm_vs_cold_mean_kl_topk is 0.08")
def collapse_of_one_transform(run: Run) -> None:
    change(run, [12, 13, 14], pair={"mean_kl": 0.2, "worst_kl": 0.2})
    run.gates = GateRequest.of(max_warm_vs_cold_kl=0.05)


@refused_because("only 1 of 16 clean pairs with reuse had their answers compared")
def divergence_of_one_pair(run: Run) -> None:
    change(run, HITS[1:], pair={"mean_kl": None, "worst_kl": None})
    run.gates = GateRequest.of(max_warm_vs_cold_kl=0.05)


@refused_because("max_worst_kl: reused_warm_vs_cold_worst_kl_topk is 3")
def one_position_that_fell_apart(run: Run) -> None:
    change(run, [1], pair={"worst_kl": 3.0})


@refused_because("max_answer_flip_rate: reused_answer_flip_rate is 0.0625")
def answers_that_flipped(run: Run) -> None:
    change(run, [1], pair={"answer_flip": True})


@refused_because("min_identical_text_rate: reused_identical_text_rate is 0.75 (12 of 16")
def other_answers(run: Run) -> None:
    change(run, HITS[:4], warm={"text": "Rome"})


def _deny(run: Run, numbers: list[int]) -> None:
    """The backend says that it reused nothing."""
    nothing = {"outcome": "cold_fallback", "reused_tokens": 0, "advertised_tokens": 0, "computed_tokens": 0}
    change(run, numbers, backend=nothing, backend_confirmed_blocks=0)


def _leak(run: Run, number: int, tokens: int) -> None:
    change(
        run,
        [number],
        backend={
            "outcome": "backend_materialized_reuse",
            "reused_tokens": tokens,
            "advertised_tokens": tokens,
            "decline_reason": None,
        },
        warm={"cached_tokens": tokens},
        backend_confirmed_blocks=tokens // BLOCK,
    )


@pytest.mark.parametrize("name", FABRICATIONS)
def test_a_fabricated_win_is_refused_with_its_cause(name: str, tmp_path: Path) -> None:
    fabricate, cause = FABRICATIONS[name]
    run = honest_run()
    fabricate(run)
    try:
        failures = judged(run, tmp_path).failures
    except ContractError as error:
        failures = [str(error)]
    assert any(cause in failure for failure in failures), failures


@pytest.mark.parametrize("name", FABRICATIONS)
def test_allow_missing_allows_none_of_the_contradictions(name: str, tmp_path: Path) -> None:
    """What was not measured may be forgiven; what was measured and does not agree may not."""
    fabricate, _ = FABRICATIONS[name]
    run = honest_run()
    fabricate(run)
    run.gates = replace(run.gates, allow_missing=True)
    try:
        passed = judged(run, tmp_path).passed
    except ContractError:
        passed = False
    unmeasured = {
        "quality_with_zero_reuse",
        "divergence_with_zero_reuse",
        "stock_prefix_cache_as_reuse",
        "no_negatives",
    }
    assert passed is (name in unmeasured)


def numbers_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_in(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from numbers_in(inner, (*path, index))
    elif value is None or isinstance(value, int | float):
        yield path


HONEST = honest_run()
RESULT = assembled(HONEST)
PLACES = [(block, *path) for block in ("aggregate", "by_transform", "paired") for path in numbers_in(RESULT[block])]


def test_the_mutations_reach_every_block() -> None:
    assert {place[0] for place in PLACES} == {"aggregate", "by_transform", "paired"}
    assert len(PLACES) > 500
    assert judge(RESULT, HONEST.rows, None, GateRequest.of()).passed


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(PLACES), st.data())
def test_any_changed_number_is_refused(place: tuple[Any, ...], data: st.DataObject) -> None:
    forged = copy.deepcopy(RESULT)
    parent = forged
    for key in place[:-1]:
        parent = parent[key]
    old = parent[place[-1]]
    known = old if isinstance(old, int | float) else 0.0
    new = data.draw(
        st.one_of(
            st.floats(-1e6, 1e6).filter(lambda v: abs(v - known) > 1e-6 * max(1.0, abs(known))),
            st.sampled_from([1.0000011 * known + 1e-5, known + 1, -known - 1, float("nan"), float("inf"), "1", True]),
            st.none() if old is not None else st.just(0),
        )
    )
    parent[place[-1]] = new
    found = judge(forged, HONEST.rows, None, GateRequest.of(allow_missing=True))
    assert any(str(place[-1]) in failure and "but the rows give" in failure for failure in found.failures)


@pytest.mark.parametrize("forged", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["pairs", "failed_pairs"])
def test_a_count_that_is_no_number_is_refused_by_the_rows(name: str, forged: float) -> None:
    result = copy.deepcopy(RESULT)
    result["paired"][name] = forged
    found = judge(result, HONEST.rows, None, GateRequest.of(allow_missing=True))
    assert any(name in failure and "but the rows give" in failure for failure in found.failures)


def test_a_row_lost_and_everything_computed_again_needs_the_manifest(tmp_path: Path, capsys: Any) -> None:
    """The one forgery that is a consistent result: only the manifest knows what was to be run."""
    run = honest_run()
    manifest = tmp_path / "m.jsonl"
    write_manifest(
        manifest,
        [
            WorkloadItem(
                item_id=row.item_id,
                dataset=row.dataset,
                source_id=row.source_id,
                transform=row.transform,
                recipient_prompt="prompt",
                answers=("Paris",),
                negative_control=row.negative_control,
                metadata={"tenant": row.tenant, **CHOICE},
            )
            for row in run.rows
        ],
    )
    digest = manifest_digest(manifest)

    def code(rows: list[RequestRow], digest: str = digest) -> tuple[int, list[str]]:
        write_result(tmp_path / "r.json", assembled(replace(run, rows=rows), digest))
        status = main(["assert-result-gates", "--result", str(tmp_path / "r.json"), "--manifest", str(manifest)])
        return status, json.loads(capsys.readouterr().out)["failures"]

    assert code(run.rows) == (0, [])
    partial = assembled(replace(run, rows=run.rows[:3]), digest)
    partial["run"]["max_items"] = 3
    write_result(tmp_path / "r.json", partial)
    asked = ["assert-result-gates", "--result", str(tmp_path / "r.json"), "--manifest", str(manifest)]
    assert main(asked) == 1
    reported = json.loads(capsys.readouterr().out)
    assert reported["failures"][0].startswith("only 3 of the manifest's 28 items were selected")
    assert reported["result_sha256"] == hashlib.sha256((tmp_path / "r.json").read_bytes()).hexdigest()
    assert main([*asked, "--allow-partial-manifest"]) == 0
    assert "rows are the manifest's items (3 of 28)" in json.loads(capsys.readouterr().out)["checked"]
    kept = [row for number, row in enumerate(run.rows) if number not in MISSES]
    assert code(kept) == (1, ["4 of the manifest's 28 items have no row (0000000000000000 first)"])
    answered = run.rows[0].warm
    assert answered is not None
    flipped = [replace(run.rows[0], warm=replace(answered, text="Rome")), *run.rows[1:]]
    assert "warm answer is marked Mark(read='Paris'" in code(flipped)[1][0], "the text says something else"
    relabelled = [replace(run.rows[20], negative_control=False), *run.rows[:20], *run.rows[21:]]
    assert "negative_control is False, in the manifest True" in code(relabelled)[1][0]
    stranger = replace(
        run.rows[0],
        item_id="ab",
        cold=None,
        warm=ArmRow(request_id="ab", status="ok", ttft_ms=90.0),
        pair=None,
        backend=None,
        backend_confirmed_blocks=None,
    )
    assert "1 rows belong to no item of the manifest (ab first)" in code([*run.rows, stranger])[1]
    assert "a different manifest" in code(run.rows, "1" * 64)[1][0]


def test_the_builder_fills_every_live_field() -> None:
    """A field the honest run leaves empty is one no fabrication was tried on."""
    filled = {f.name for row in HONEST.rows for f in fields(ArmRow) if getattr(row.cold, f.name) is not None}
    assert filled == {f.name for f in fields(ArmRow)}
    hit = HONEST.rows[1].backend
    assert {f.name for f in fields(BackendRow) if getattr(hit, f.name) is None} == {"decline_reason"}
