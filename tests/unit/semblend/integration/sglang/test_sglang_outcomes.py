"""SGLang reports the same five outcomes as vLLM, and calls reuse confirmed only when something was reused."""

from __future__ import annotations

import numpy as np
from tests.unit.semblend.integration.sglang.trackers import TrackerBench, words

from semblend.contract import Decline, DeclineReason, Discovery
from semblend.integration.hints import Hints
from semblend.integration.sglang.request_tracker import SglangRequest, meta_info

DOCUMENT = words(1, 800)
PROMPT = np.concatenate([words(2, 50), DOCUMENT, words(3, 40)])


def claimed() -> tuple[TrackerBench, SglangRequest]:
    bench = TrackerBench()
    bench.serve_cold("donor", np.concatenate([words(9, 30), DOCUMENT, words(8, 20)]))
    assert bench.ask("r", PROMPT) > 0
    return bench, bench.record("r")


def test_a_confirmed_load_is_materialized_reuse_with_its_runs() -> None:
    bench, record = claimed()
    bench.tracker.loaded(record)
    pending = meta_info(record)
    assert (pending["outcome"], pending["evidence"]) == ("backend_declined_reuse", "measured_live")
    bench.tracker.confirmed(record, 1.0, 1.0)
    info = meta_info(record)
    assert (info["outcome"], info["reason"], info["evidence"]) == (
        "backend_materialized_reuse",
        None,
        "backend_confirmed",
    )
    assert sum(run["length"] for run in info["runs"]) == info["reused_tokens"] > 0
    assert info["donor_ids"] == [info["runs"][0]["donor_id"]]
    assert (info["blend_generation"], info["exact_tokens"]) == (1, record.exact_tokens)


def test_a_load_that_was_wrong_or_not_wanted_is_declined_and_confirms_nothing() -> None:
    for fault, reason in (("keys are off", "internal_error"), ("", "disabled")):
        bench, record = claimed()
        bench.tracker.loaded(record)
        bench.tracker.computed_whole(record, fault)
        info = meta_info(record)
        assert (info["outcome"], info["reason"], info["evidence"]) == (
            "backend_declined_reuse",
            reason,
            "measured_live",
        )
        assert (info["reused_tokens"], info["runs"], info["donor_ids"], info["blend_generation"]) == (0, [], [], 0)
        assert info["exact_tokens"] == len(PROMPT)


def test_a_claim_withdrawn_at_admission_is_declined_by_the_backend_with_its_reason() -> None:
    bench, record = claimed()
    bench.tracker.withdrawn(record, DeclineReason.STALE, "the donor left the tree")
    info = meta_info(record)
    assert (info["outcome"], info["reason"], info["detail"]) == (
        "backend_declined_reuse",
        "stale",
        "the donor left the tree",
    )


def test_a_plan_that_was_never_admitted_is_not_a_cold_fallback() -> None:
    _, record = claimed()
    assert meta_info(record)["outcome"] == "backend_declined_reuse"


def test_without_a_plan_discoveries_then_the_exact_prefix_decide() -> None:
    bench = TrackerBench()
    assert bench.ask("cold", PROMPT) == 0
    assert meta_info(bench.record("cold"))["outcome"] == "cold_fallback"
    assert bench.ask("exact", PROMPT, boundary=16, hints=Hints(reuse=False)) == 0
    info = meta_info(bench.record("exact"))
    assert (info["outcome"], info["reason"], info["exact_prefix_tokens"]) == ("exact_prefix", "disabled", 16)
    record = bench.record("cold")
    record.answered(Decline(DeclineReason.NOT_TOKEN_IDENTICAL, "", (Discovery("d", 0.9, "text"),)), 0)
    info = meta_info(record)
    assert (info["outcome"], info["reason"]) == ("semantic_discovery_only", "not_token_identical")
    assert info["discoveries"] == [{"donor_id": "d", "similarity": 0.9, "source": "text"}]


def test_exact_kv_that_was_loaded_counts_as_reuse() -> None:
    """The donor's first tokens left the device, not the store: loaded in place, and equal to cold prefill."""
    bench = TrackerBench()
    bench.serve_cold("donor", DOCUMENT)
    tokens = np.concatenate([DOCUMENT, words(4, 50)])
    assert bench.ask("r", tokens) > 0
    record = bench.record("r")
    assert record.exact_tokens == len(tokens)
    bench.tracker.loaded(record)
    bench.tracker.confirmed(record, 1.0, 1.0)
    info = meta_info(record)
    assert (info["outcome"], info["blend_generation"]) == ("backend_materialized_reuse", 0)
    assert info["reused_tokens"] > 700
