"""Does it pay? Held against the closed form where costs are constant, and against laws where they are not."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError, ContractError
from sembench.cli.main import main
from sembench.metrics.rows import ArmRow, BackendRow, RequestRow
from sembench.report.build import Sources, build_page
from sembench.result import RunFacts, assemble, read_result, write_result
from sembench.roi.costs import MeasuredCosts, ReusedRequest, read_costs
from sembench.roi.estimate import RoiEstimate, RoiOptions, estimate
from sembench.roi.lengths import LengthHistogram, read_lengths
from sembench.roi.rate import ReuseRate, counted, parse_rate
from semblend.contract import Evidence


def costs(
    miss: tuple[float, ...] = (0.1,) * 6, capture: tuple[float, ...] = (0.05,) * 6, low: int = 1000, high: int = 4000
) -> MeasuredCosts:
    """Cold takes 0.1 ms per token, warm a fifth of that: constant, so that the closed form is exact."""
    requests = tuple(ReusedRequest(n, 0.1 * n, 0.02 * n) for n in (low, high) for _ in range(4))
    return MeasuredCosts(requests, miss, capture, 8, 16, "made")


def exactly(rate: float) -> ReuseRate:
    return ReuseRate(rate, None, None, "given")


def histogram(**counts: float) -> LengthHistogram:
    return LengthHistogram({int(key[1:]): value for key, value in counts.items()}, "made")


def ask(rate: float = 0.4, measured: MeasuredCosts | None = None, **options: Any) -> RoiEstimate:
    lengths = histogram(t1000=3, t2500=1)
    return estimate(lengths, measured or costs(), exactly(rate), RoiOptions(draws=200, **options))


def test_constant_costs_give_the_closed_form() -> None:
    found = ask(0.4)
    mean_tokens = (3 * 1000 + 2500) / 4
    wanted = 0.4 * 0.08 * mean_tokens - 0.6 * 0.15 * 0.1 * mean_tokens
    assert found.saving_ms.value == pytest.approx(wanted)
    assert found.saving_ms.low == pytest.approx(found.saving_ms.high)
    assert found.saving_share.value == pytest.approx(wanted / (0.1 * mean_tokens))
    assert found.break_even_rate is not None
    assert found.break_even_rate.value == pytest.approx(0.015 / (0.08 + 0.015))
    assert found.probability_of_saving == 1.0
    bucket = found.buckets[0]
    assert (bucket.low, bucket.high, bucket.requests, bucket.extrapolated) == (512, 1024, 3.0, 0.0)
    assert bucket.cold_ms.value == pytest.approx(100)
    assert bucket.warm_ms.value == pytest.approx(20)
    assert bucket.miss_ms is not None
    assert bucket.miss_ms.value == pytest.approx(10)


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_reuse_saves_more_and_the_break_even_saves_nothing(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert ask(low).saving_ms.value <= ask(high).saving_ms.value + 1e-9
    needed = ask().break_even_rate
    assert needed is not None
    assert ask(needed.value).saving_ms.value == pytest.approx(0, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(50, 200), st.floats(10, 250)), min_size=6, max_size=20), st.integers(0, 20))
def test_intervals_hold_what_was_measured(times: list[tuple[float, float]], reused: int) -> None:
    """Everything measured at one length: the mean saving lies within the extremes, and in its own interval."""
    measured = MeasuredCosts(tuple(ReusedRequest(1000, c, w) for c, w in times), (), (), None, None, "made")
    found = estimate(histogram(t1000=1), measured, counted(reused, 20, "made"), RoiOptions(draws=400))
    gains = [cold - warm for cold, warm in times]
    assert min(*gains, 0) - 1e-9 <= found.saving_ms.low <= found.saving_ms.high <= max(*gains, 0) + 1e-9
    assert found.saving_ms.low <= found.saving_ms.value <= found.saving_ms.high
    assert [share for share, _ in found.curve] == [i / 20 for i in range(21)]


def test_noise_in_the_rate_widens_the_interval_and_counts_narrow_it() -> None:
    spreads = []
    for rate in (exactly(0.5), counted(100, 200, "made"), counted(5, 10, "made"), ReuseRate(0.5, 0.2, 0.8, "given")):
        found = estimate(histogram(t1000=1), costs(), rate, RoiOptions(draws=2000))
        spreads.append(found.saving_ms.high - found.saving_ms.low)
    assert spreads[0] == pytest.approx(0)
    assert spreads[0] < spreads[1] < spreads[2]
    assert spreads[3] > 3 * spreads[1]


def test_a_given_interval_is_the_one_that_is_drawn() -> None:
    drawn = ReuseRate(0.3, 0.2, 0.42, "given").draw(np.random.default_rng(1), 20_000)
    assert np.quantile(drawn, [0.025, 0.975]) == pytest.approx([0.2, 0.42], abs=0.01)


def test_lengths_that_were_not_measured_are_rejected_or_stated() -> None:
    lengths = histogram(t1000=1, t100=1, t9000=2)
    with pytest.raises(ConfigurationError, match=r"75.0 % .* \(1,000 to 4,000 tokens\); .*--extrapolate"):
        estimate(lengths, costs(), exactly(0.5), RoiOptions())
    found = estimate(lengths, costs(), exactly(0.5), RoiOptions(extrapolate=True, draws=100))
    assert found.extrapolated_share == 0.75
    by_low = {bucket.low: bucket for bucket in found.buckets}
    assert by_low[8192].cold_ms.value == pytest.approx(400)  # as the longest measured, not more
    assert by_low[64].cold_ms.value == pytest.approx(10)  # in proportion
    assert (by_low[512].extrapolated, by_low[8192].extrapolated) == (0.0, 2.0)


def test_a_miss_that_measured_faster_is_never_a_gain() -> None:
    free = ask(0.4, costs(miss=(), capture=()))
    lucky = ask(0.4, costs(miss=(-0.2,) * 6, capture=(-0.1,) * 6))
    assert lucky.saving_ms == free.saving_ms
    assert lucky.break_even_rate == free.break_even_rate


def test_reuse_that_is_slower_never_pays() -> None:
    slow = MeasuredCosts(tuple(ReusedRequest(1000, 100, 130) for _ in range(6)), (0.1,), (), None, None, "made")
    found = estimate(histogram(t1000=1), slow, exactly(0.9), RoiOptions(draws=50))
    assert found.break_even_rate is None
    assert found.never_pays_share == 1.0
    assert found.probability_of_saving == 0.0


def test_too_few_measurements_are_no_estimate() -> None:
    few = MeasuredCosts(tuple(ReusedRequest(1000, 100, 30) for _ in range(5)), (), (), None, None, "made")
    with pytest.raises(ContractError, match="too few"):
        estimate(histogram(t1000=1), few, exactly(0.5), RoiOptions())


def test_a_trace_of_every_length_costs_no_more_memory_than_a_histogram() -> None:
    many = LengthHistogram(dict.fromkeys(range(1000, 4001), 1.0), "made")
    found = estimate(many, costs(), exactly(0.5), RoiOptions(draws=100))
    assert sum(bucket.requests for bucket in found.buckets) == 3001
    mean_tokens = 2500
    assert found.saving_ms.value == pytest.approx(0.5 * 0.08 * mean_tokens - 0.5 * 0.015 * mean_tokens, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("h.csv", "prompt_tokens,count\n1000,3\n2000,2\n1000,1\n", {1000: 4.0, 2000: 2.0}),
        (
            "azure.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2023-11-16 18:17:03.9799600,374,44\n2023-11-16 18:17:04.0319600,396,109\n",
            {374: 1.0, 396: 1.0},
        ),
        ("b.csv", "low,high,count\n512,1536,7\n", {1024: 7.0}),
        ("m.json", '{"1024": 5, "2048": 1.5}', {1024: 5.0, 2048: 1.5}),
        ("l.json", '[{"tokens": 10, "requests": 2}, 30, 30]', {10: 2.0, 30: 2.0}),
        ("mooncake.jsonl", '{"timestamp": 0, "input_length": 6758}\n\n{"input_length": 7}\n', {6758: 1.0, 7: 1.0}),
    ],
)
def test_lengths_are_read_from_histograms_and_traces(
    tmp_path: Path, name: str, text: str, wanted: dict[int, float]
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert read_lengths(path).counts == dict(sorted(wanted.items()))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.csv", "prompt_tokens,count\n"),
        ("n.csv", "prompt_tokens,count\n-5,1\n"),
        ("f.csv", "prompt_tokens,count\n5,nan\n"),
        ("c.csv", "size,count\n5,1\n"),
        ("x.json", '{"a": 1}'),
        ("y.json", "3"),
        ("z.json", "{"),
        ("w.jsonl", "[1]\n"),
    ],
)
def test_lengths_that_are_none_are_refused(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ContractError, match=re.escape(str(path))):
        read_lengths(path)


def test_lengths_of_a_manifest_are_counted_by_a_tokenizer(manifest: Path) -> None:
    found = read_lengths(manifest)
    assert found.requests == sum(1 for line in manifest.read_text(encoding="utf-8").split("\n") if line.strip())
    assert min(found.counts) > 64
    assert found.source.startswith("manifest")


@pytest.mark.parametrize("text", ["1.2", "x", "5/0", "7/5", "-1"])
def test_rates_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_rate(text, None)


def test_rates_are_given_as_counts_or_with_an_interval() -> None:
    rate = parse_rate("31/120", None)
    assert rate.value == pytest.approx(31 / 120)
    assert rate.low is not None
    assert rate.low < rate.value
    assert parse_rate("0.3", (0.2, 0.4)).high == 0.4
    with pytest.raises(ConfigurationError, match="interval"):
        parse_rate("31/120", (0.1, 0.4))
    with pytest.raises(ConfigurationError, match="is outside its interval"):
        parse_rate("0.5", (0.1, 0.4))


def benchmark(path: Path) -> Path:
    reused = {"outcome": "backend_materialized_reuse"}
    declined = {"outcome": "backend_declined_reuse"}
    rows = [
        {"prompt_tokens": n, "cold_ms": 0.1 * n, "ours_ms": 0.02 * n, "cold_cached_tokens": 0, "fate": reused}
        for n in (1024, 4096)
        for _ in range(4)
    ]
    rows.append({**rows[0], "cold_cached_tokens": 512, "cold_ms": 1.0})
    rows.append({**rows[0], "fate": declined, "ours_ms": 999.0})
    times = {"stock": 100.0, "miss": 104.0, "capture": 106.08}
    overhead = [{"first_ms": times, "is_clean": True}] * 3 + [
        {"first_ms": {"stock": 1.0, "miss": 9.0}, "is_clean": False}
    ]
    path.write_text(json.dumps({"rows": rows, "overhead": overhead}), encoding="utf-8")
    return path


def test_costs_of_the_benchmark_leave_out_contaminated_and_declined_rows(tmp_path: Path) -> None:
    found = read_costs([benchmark(tmp_path / "vllm.json")])
    assert {(r.prompt_tokens, r.cold_ms) for r in found.requests} == {(1024, 102.4), (4096, 409.6)}
    assert found.miss_shares == pytest.approx((0.04,) * 3)
    assert found.capture_shares == pytest.approx((0.02,) * 3)
    assert found.reported is None


def paired(path: Path) -> Path:
    rows = []
    for i in range(12):
        reused = 960 if i < 8 else 0
        warm_ms = 30.0 if reused else 103.0
        outcome = "backend_materialized_reuse" if reused else "backend_declined_reuse"
        item = f"i{i}"
        rows.append(
            RequestRow(
                item_id=item,
                dataset="d",
                source_id="s",
                transform="rag_reorder",
                negative_control=i == 11,
                tenant=None,
                stream_id=None,
                prompt_tokens=1000 + 10 * i,
                total_blocks=62,
                backend_confirmed_blocks=reused // 16,
                cold=ArmRow(
                    request_id=f"cold.{item}",
                    status="ok",
                    ttft_ms=100.0,
                    total_ms=150.0,
                    prompt_tokens=1000,
                    completion_tokens=4,
                    cached_tokens=900 if i == 0 else 0,
                    contaminated=i == 0,
                ),
                warm=ArmRow(
                    request_id=item,
                    status="ok",
                    ttft_ms=warm_ms,
                    total_ms=90.0,
                    prompt_tokens=1000,
                    completion_tokens=4,
                    cached_tokens=reused,
                ),
                backend=BackendRow(
                    engine_request_id=item,
                    outcome=outcome,
                    found_tokens=reused,
                    advertised_tokens=reused,
                    boundary=0,
                    reused_tokens=reused,
                    computed_tokens=40 if reused else 1000,
                ),
            )
        )
    facts = RunFacts(
        kind="live",
        evidence=Evidence.MEASURED_LIVE,
        manifest_name="m",
        manifest_digest="0" * 64,
        config={"block_size": 16},
        seed=1,
    )
    write_result(path, assemble(facts, rows))
    return path


def test_costs_of_a_paired_run_are_those_of_its_clean_pairs(tmp_path: Path) -> None:
    found = read_costs([paired(tmp_path / "r.json")])
    assert len(found.requests) == 7  # one of the eight was contaminated
    assert found.miss_shares == pytest.approx((0.03,) * 4)
    assert (found.reused, found.reported) == (7, 10)  # the negative control is in no rate
    both = read_costs([paired(tmp_path / "r.json"), benchmark(tmp_path / "v.json")])
    assert len(both.requests) == 15
    assert both.reported is None  # a rate of picked requests is none


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"rows": [{"cold_ms": 1}]}'])
def test_files_that_measured_nothing_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ContractError):
        read_costs([path])


def test_the_command_prints_writes_and_the_report_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lengths, output = tmp_path / "h.csv", tmp_path / "roi.json"
    lengths.write_text("tokens,count\n1024,10\n3000,4\n", encoding="utf-8")
    measured = benchmark(tmp_path / "vllm.json")
    common = ["roi", "--lengths", str(lengths), "--costs", str(measured)]
    assert main(common) == 2
    assert "--reuse-rate" in capsys.readouterr().err
    assert main([*common, "--reuse-rate", "30/100", "--draws", "300", "--output", str(output)]) == 0
    shown = capsys.readouterr().out
    assert "break-even reuse rate" in shown
    assert "30.0 % [21.9 %, 39.6 %]" in shown
    result = paired(tmp_path / "r.json")
    page = build_page(Sources((result,), roi=output)).html()
    assert "Saving against the reuse rate" in page
    assert "This is an estimate from measured costs, not a measurement." in page
    lengths.write_text("tokens,count\n1024,10\n9000,4\n", encoding="utf-8")
    assert main([*common, "--reuse-rate", "0.3"]) == 2
    assert main([*common, "--reuse-rate", "0.3", "--extrapolate", "--draws", "300"]) == 0
    assert "EXTRAPOLATED: 28.6 % of the requests" in capsys.readouterr().out


def test_a_run_without_an_audit_is_reported_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, rows = read_result(paired(tmp_path / "r.json"))
    silent = [replace(row, backend=None, backend_confirmed_blocks=None) for row in rows]
    facts = RunFacts(
        kind="live",
        evidence=Evidence.MEASURED_LIVE,
        manifest_name="m",
        manifest_digest="0" * 64,
        config=result["config"],
        seed=1,
    )
    write_result(tmp_path / "silent.json", assemble(facts, silent))
    lengths = tmp_path / "h.csv"
    lengths.write_text("tokens,count\n1024,10\n", encoding="utf-8")
    common = ["roi", "--lengths", str(lengths), "--costs", str(tmp_path / "silent.json")]
    assert main(common) == 2
    error = capsys.readouterr().err
    assert "no backend reported on any request" in error
    assert "--connector-audit" in error
    assert "selected for reuse" not in error
    assert main([*common, "--reuse-rate", "0.3"]) == 2


def test_a_miss_of_the_same_server_is_not_called_stock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lengths = tmp_path / "h.csv"
    lengths.write_text("tokens,count\n1024,10\n", encoding="utf-8")
    common = ["roi", "--lengths", str(lengths), "--reuse-rate", "0.3", "--draws", "100", "--costs"]
    assert main([*common, str(benchmark(tmp_path / "v.json"))]) == 0
    assert "not a stock engine" not in " ".join(capsys.readouterr().out.split())
    assert main([*common, str(paired(tmp_path / "r.json"))]) == 0
    assert "not a stock engine" in " ".join(capsys.readouterr().out.split())


def test_the_same_seed_gives_the_same_estimate(tmp_path: Path) -> None:
    rate = counted(3, 10, "made")
    noisy = MeasuredCosts(
        tuple(ReusedRequest(1000, 90.0 + i, 20.0 + i * i) for i in range(8)), (0.1, 0.0), (), None, None, "made"
    )
    first, again, other = (
        estimate(histogram(t1000=1), noisy, rate, RoiOptions(draws=200, seed=seed)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
