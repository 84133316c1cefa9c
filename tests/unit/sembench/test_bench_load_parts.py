"""The parts of a load: arrivals, traces, prompts, percentiles, summaries. No server."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.data.folder import REAL_DATA

from sembase.errors import ConfigurationError
from sembase.tokenizer import open_tokenizer
from sembase.trace.record import TraceBlock, TraceRecord, record_as_json
from sembench.http.client import LiveReply
from sembench.load.prompts import (
    DEFAULT_MAX_TOKENS,
    GeneratedPrompts,
    GeneratedWords,
    ManifestPrompts,
    PreparedPrompts,
    TraceEntry,
    TracePrompts,
    WorkloadOptions,
    open_workload,
    read_trace,
)
from sembench.load.records import LoadRecord, cancelled_record, record_of
from sembench.load.schedule import gamma_offsets, ramp_offsets
from sembench.load.summary import Slo, confidence_ranks, summarize, summarize_load
from sembench.manifest import WorkloadItem


@pytest.mark.parametrize(("burstiness", "spread"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_arrivals_keep_their_rate_and_their_burstiness(burstiness: float, spread: float) -> None:
    """The gaps of a gamma process vary by 1 / sqrt(shape) of their mean."""
    offsets = list(itertools.islice(gamma_offsets(20.0, burstiness, seed=7), 20_000))
    gaps = [b - a for a, b in itertools.pairwise([0.0, *offsets])]
    assert statistics.fmean(gaps) == pytest.approx(1 / 20, rel=0.05)
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(spread, rel=0.1)
    assert offsets == sorted(offsets)


def test_arrivals_follow_their_seed() -> None:
    first, again, other = (list(itertools.islice(gamma_offsets(5.0, 1.0, seed), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert ramp_offsets(4, 2.0) == [0.0, 0.5, 1.0, 1.5]


AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3,0"
)
MOONCAKE = '{"timestamp": 3000, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n' * 2


def test_an_azure_trace(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(AZURE.encode()))
    first, second = read_trace(tmp_path / "t.csv.gz")
    assert (first.at_s, first.prompt_tokens, first.output_tokens) == (0.0, 4808, 10)
    assert second.at_s == pytest.approx(0.052, abs=1e-6)
    assert (second.prompt_tokens, second.output_tokens) == (3, 1)


def test_a_mooncake_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(MOONCAKE + '{"timestamp": 1000, "input_length": 5, "output_length": 7, "hash_ids": [9]}\n')
    entries = read_trace(path)
    assert [entry.at_s for entry in entries] == [0.0, 2.0, 2.0]
    (block,) = entries[0].blocks
    assert entries[0] == TraceEntry(0.0, 5, 7, (block,))
    assert block[1] == 5
    assert entries[1].blocks == entries[2].blocks
    assert [tokens for _, tokens in entries[1].blocks] == [512, 88]


def record_trace(path: Path, output_tokens: int | None) -> Path:
    blocks = [TraceBlock("system", 7, content_hash="s"), TraceBlock("user", 3, content_hash="u")]
    records = [
        TraceRecord(f"r{n}", 500.0 * n, (blocks[0], replace(blocks[1], content_hash=f"u{n}")), output_tokens=output)
        for n, output in enumerate((4, output_tokens))
    ]
    path.write_text("".join(json.dumps(record_as_json(record)) + "\n" for record in records))
    return path


def test_a_trace_of_records(tmp_path: Path) -> None:
    first, second = read_trace(record_trace(tmp_path / "t.jsonl", 4))
    assert (first.at_s, second.at_s, second.prompt_tokens, second.output_tokens) == (0.0, 0.5, 10, 4)
    assert first.blocks[0] == second.blocks[0]
    assert first.blocks[1] != second.blocks[1]


def test_an_unknown_output_length_becomes_the_default(tmp_path: Path) -> None:
    entries = read_trace(record_trace(tmp_path / "t.jsonl", None))
    assert [entry.output_tokens for entry in entries] == [4, DEFAULT_MAX_TOKENS]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n", "run-load reads .*azure.*mooncake"),
        (b"", "run-load reads"),
        (AZURE.replace("4808", "many").encode(), "line 2: expected TIMESTAMP"),
        (b'{"timestamp": 1}\n', "unknown trace format; run-load reads .*azure.*mooncake"),
        (MOONCAKE.replace("600", "-600").encode(), "whole numbers >= 0"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n", "contains no requests"),
        (b"\xff\xfe\x00", "unknown trace format"),
    ],
)
def test_a_trace_that_is_none_says_where(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        read_trace(path)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "requests"), [("azure_2023_conv.csv.gz", 19_366), ("mooncake_conversation_trace.jsonl.gz", 12_031)]
)
def test_the_published_traces(name: str, requests: int) -> None:
    path = REAL_DATA / "traces" / name
    if not path.exists():
        pytest.skip("the traces are not beside this clone")
    entries = read_trace(path)
    assert len(entries) == requests
    assert entries[0].at_s == 0.0
    assert 3400 < entries[-1].at_s < 3700


def trace_prompts(**limits: int | None) -> TracePrompts:
    entries = [
        TraceEntry(0.0, 1100, 5, ((1, 512), (2, 512), (3, 76))),
        TraceEntry(0.1, 1000, 9, ((1, 512), (2, 512))),
        TraceEntry(0.2, 40, 3),
    ]
    given_limits = {"max_prompt_tokens": None, "max_tokens": None, **limits}
    return TracePrompts(GeneratedWords(0, None), entries, tenant="t", **given_limits)


def test_equal_blocks_of_a_trace_are_equal_text() -> None:
    prompts = trace_prompts()
    first, second, third = (prompts.get(number) for number in range(3))
    assert [len(p.text.split()) for p in (first, second, third)] == [1100, 1000, 40]
    assert [p.max_tokens for p in (first, second, third)] == [5, 9, 3]
    shared = len([1 for a, b in zip(first.text.split(), second.text.split(), strict=False) if a == b])
    assert shared >= 1000
    assert third.text.split()[:20] != first.text.split()[:20]
    cut = trace_prompts(max_prompt_tokens=600, max_tokens=4).get(0)
    assert (len(cut.text.split()), cut.max_tokens) == (600, 4)


def test_invented_prompts_share_no_prefix_and_follow_the_seed() -> None:
    prompts = GeneratedPrompts(GeneratedWords(3, None), 30, 8, None)
    texts = [prompts.get(number).text for number in range(50)]
    assert {len(text.split()) for text in texts} == {30}
    assert len({tuple(text.split()[:4]) for text in texts}) == 50
    assert texts[7] == GeneratedPrompts(GeneratedWords(3, None), 30, 8, None).get(7).text
    warm_up = GeneratedPrompts(GeneratedWords(3, None), 30, 8, None, name="warm-up")
    assert warm_up.get(0).text not in texts


def test_with_a_tokenizer_lengths_are_tokens() -> None:
    tokenizer = open_tokenizer(None)
    text = GeneratedWords(0, tokenizer).text("x", 33)
    assert len(tokenizer.encode(text).ids) == 33


def test_manifest_prompts_go_round_and_keep_their_tenant() -> None:
    items = [
        WorkloadItem(
            item_id="a",
            dataset="d",
            source_id="s",
            transform="t",
            recipient_prompt="first",
            metadata={"tenant": "own", "template": "chatml"},
        ),
        WorkloadItem(item_id="b", dataset="d", source_id="s", transform="t", recipient_prompt="second"),
    ]
    prompts = PreparedPrompts(ManifestPrompts(items, 9, "given"), 3)
    assert [prompts.get(n).text for n in range(5)] == ["first", "second", "first", "second", "first"]
    assert [prompts.get(n).tenant for n in (0, 1)] == ["own", "given"]
    assert prompts.get(0).template == "chatml"


def wish(**changes: object) -> WorkloadOptions:
    fields = dict.fromkeys(WorkloadOptions.__slots__)
    return WorkloadOptions(**{**fields, "seed": 0, **changes})  # type: ignore[arg-type]


def test_what_to_send_must_be_given_once_and_must_end(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--duration S or --requests N"):
        open_workload(wish())
    with pytest.raises(ConfigurationError, match="pass one of them"):
        open_workload(wish(manifest=tmp_path / "m", prompt_tokens=5))
    assert open_workload(wish(requests=4)).limit.allows(3, 10.0**9)
    assert not open_workload(wish(requests=4)).limit.allows(4, 0.0)
    assert not open_workload(wish(duration_s=2.0)).limit.allows(0, 2.0)


def binomial_coverage(count: int, share: float, low: int | None, high: int | None) -> float:
    """P(X_(low) <= q < X_(high)) = P(low <= B < high), summed directly."""
    from math import comb

    first, last = (0 if low is None else low), (count if high is None else high - 1)
    return sum(comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(first, last + 1))


@given(count=st.integers(1, 150), percent=st.sampled_from([50, 90, 95, 99]))
def test_intervals_cover_at_least_95_percent_and_no_rank_is_wasted(count: int, percent: int) -> None:
    share = percent / 100
    low, high = confidence_ranks(count, share)
    assert low is None or 1 <= low <= count
    assert high is None or 1 <= high <= count
    assert binomial_coverage(count, share, low, high) >= 0.95 - 1e-9
    if low is not None:  # one rank more would leave more than 2.5 % below
        assert binomial_coverage(count, share, None, low + 1) > 0.025 - 1e-9


def test_intervals_hold_what_they_promise_on_draws() -> None:
    draws = random.Random(5)
    held = sum(
        (low is None or low <= 0.9) and (high is None or high > 0.9)
        for summary in (summarize([draws.random() for _ in range(200)]) for _ in range(400))
        if summary is not None
        for low, high in [summary["p90"]["ci95"]]
    )
    assert 370 <= held <= 400  # 380 expected at least


def test_the_normal_approximation_meets_the_exact_ranks() -> None:
    for share in (0.5, 0.9, 0.99):
        exact, approximate = confidence_ranks(20_000, share), confidence_ranks(20_001, share)
        for one, other in zip(exact, approximate, strict=True):
            assert one is not None
            assert other is not None
            assert abs(one - other) <= 3


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
def test_a_percentile_is_a_value_that_occurred_and_lies_in_its_interval(values: list[float]) -> None:
    summary = summarize(values)
    assert summary is not None
    for name in ("p50", "p90", "p95", "p99"):
        low, high = summary[name]["ci95"]
        assert summary[name]["value"] in values
        assert low is None or low <= summary[name]["value"]
        assert high is None or summary[name]["value"] <= high
    assert summary["n"] == len(values)
    assert summarize([]) is None


def reply(**changes: object) -> LiveReply:
    fields: dict[str, object] = {
        "request_id": "r",
        "status": "ok",
        "ttft_ms": 100.0,
        "total_ms": 450.0,
        "chunk_ms": (100.0, 200.0, 400.0),
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "sent_at": 11.05,
    }
    return LiveReply(**{**fields, **changes})  # type: ignore[arg-type]


def record(scheduled_s: float | None = 1.0, **changes: object) -> LoadRecord:
    return record_of(reply(**changes), start=10.0, scheduled_s=scheduled_s, sent_at=11.0)


def test_a_record_counts_from_the_schedule_too() -> None:
    one = record()
    assert one.lateness_ms == pytest.approx(50.0)
    assert one.from_schedule(one.ttft_ms) == pytest.approx(150.0)
    assert one.tpot_ms == pytest.approx(100.0)  # 300 ms for the three tokens after the first, in two chunks
    assert record(completion_tokens=None).tpot_ms == pytest.approx(150.0)
    assert record(completion_tokens=1, chunk_ms=(100.0,)).tpot_ms is None
    closed = record(scheduled_s=None)
    assert (closed.lateness_ms, closed.from_schedule(1.0)) == (None, None)
    assert json.loads(json.dumps(one.to_json()))["chunk_ms"] == [100.0, 200.0, 400.0]


def test_goodput_counts_failures_as_bad_and_lateness_against_us() -> None:
    failed = record(status="http_503", ttft_ms=None, chunk_ms=(), completion_tokens=None)
    cancelled = cancelled_record("c", start=10.0, scheduled_s=2.0, sent_at=12.0)
    records = [record(), record(ttft_ms=10.0), failed, cancelled]
    result = summarize_load(records, [1.0, 2.0], Slo(ttft_ms=120.0), peak_in_flight=3)
    good = result["goodput"]
    assert (good["good"], good["of"], good["good_from_schedule"]) == (2, 3, 1)
    assert good["share"] == pytest.approx(2 / 3)
    assert result["requests"]["by_status"] == {"cancelled": 1, "http_503": 1, "ok": 2}
    assert result["latency_ms"]["ttft"]["n"] == 2
    assert result["throughput"]["wall_s"] == pytest.approx(2.0)
    assert result["throughput"]["output_tokens_per_s"] == pytest.approx(8 / 2.0)
    assert summarize_load(records, [], Slo(), 0)["goodput"] is None
    assert summarize_load(records, [], Slo(tpot_ms=99.0), 0)["goodput"]["good"] == 0


def test_what_no_server_reported_is_not_zero() -> None:
    result = summarize_load([record(prompt_tokens=None)], [], Slo(), 1)
    assert result["cached_tokens"] is None
    assert result["throughput"]["prompt_tokens_per_s"] is None
    reported = summarize_load([record(cached_tokens=5), record()], [], Slo(), 1)["cached_tokens"]
    assert reported == {"cached": 5, "prompt": 10, "share": 0.5, "requests": 1}
    nothing = summarize_load([], [], Slo(ttft_ms=1.0), 0)
    assert nothing["goodput"]["share"] is None
    assert nothing["latency_ms"]["ttft"] is None
