"""Calibration: known coefficients come back, held-out requests choose nothing, and poor traces are refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from semantic_kv.calibrate import (
    Calibration,
    Observations,
    calibrate,
    calibrate_records,
    observations_from_records,
    observations_from_trace,
    read_latency_model,
    summarize,
    write_calibration,
)
from semantic_kv.latency import Engine, LatencyModel, batched_times
from sembase.errors import ConfigurationError, ContractError
from sembase.trace.build import build_trace
from sembase.trace.record import TraceBlock, TraceRecord

TRUE = LatencyModel(20.0, 0.55, 8.0, 0.0, 0.0, 18.0, 4.0, source="given")


def _served(seed: int = 0, count: int = 120, noise: float = 0.05, gap_ms: float = 900.0) -> Observations:
    """Requests on the simulated engine, with noise on what was seen."""
    draws = np.random.default_rng(seed)
    arrival = np.cumsum(draws.exponential(gap_ms, count))
    prompt = np.exp(draws.uniform(np.log(150), np.log(3500), count)).astype(np.int64)
    cached = (prompt * draws.choice([0.0, 0.3, 0.6, 0.9], count)).astype(np.int64) // 128 * 128
    output = draws.integers(8, 25, count)
    times = batched_times(arrival, prompt - cached, cached, output, TRUE)
    ttft = (times.first_token_ms - arrival) * np.exp(draws.normal(0, noise, count))
    total = ttft + (times.finish_ms - times.first_token_ms) * np.exp(draws.normal(0, noise, count))
    return Observations(
        name="served",
        arrival_ms=arrival,
        uncached_tokens=prompt - cached,
        cached_tokens=cached,
        output_tokens=output,
        ttft_ms=ttft,
        total_ms=total,
        skipped={},
    )


@pytest.fixture(scope="module")
def found() -> Calibration:
    return calibrate(_served())


def test_without_noise_every_coefficient_comes_back() -> None:
    exact = calibrate(_served(noise=0.0))

    assert exact.engine == Engine()
    for name in ("base_ms", "ms_per_uncached_token", "ms_per_million_pairs", "step_ms", "ms_per_decoding_stream"):
        assert getattr(exact.model, name) == pytest.approx(getattr(TRUE, name), rel=0.02)
    assert exact.held_out_mdape < 0.005


def test_with_noise_the_held_out_error_is_about_the_noise(found: Calibration) -> None:
    assert found.engine is not None
    assert found.held_out_mdape < 0.08
    assert found.model.ms_per_uncached_token == pytest.approx(0.55, rel=0.1)


def test_what_is_held_out_cannot_change_the_model() -> None:
    seen = _served()
    fit = calibrate(seen)
    poisoned = replace(seen, ttft_ms=np.where(fit.held_out, 10 * seen.ttft_ms, seen.ttft_ms))

    again = calibrate(poisoned)

    assert again.engine == fit.engine
    assert again.model.ms_per_uncached_token == pytest.approx(fit.model.ms_per_uncached_token, rel=1e-3)
    assert again.held_out_mdape > 0.8
    assert fit.held_out.tolist() == [index >= 84 for index in range(120)]


def test_a_quiet_trace_gets_no_queue_and_says_so() -> None:
    quiet = calibrate(_served(gap_ms=60_000.0))

    assert quiet.engine is None
    assert quiet.model.step_ms == 0.0
    (note,) = [note for note in quiet.notes if "arrived at a busy server" in note]
    assert note.startswith("no queue: ")
    assert quiet.held_out_mdape < 0.1


def test_too_few_requests_are_refused() -> None:
    with pytest.raises(ContractError, match="19 usable requests to fit and 8 to hold out"):
        calibrate(_served(count=27))


def test_prompts_that_are_all_alike_are_refused() -> None:
    seen = _served()
    with pytest.raises(ContractError, match="different lengths"):
        calibrate(replace(seen, uncached_tokens=np.full(120, 700)))


def test_terms_that_cannot_be_separated_are_left_out() -> None:
    seen = _served(gap_ms=60_000.0)
    uncached = calibrate(
        replace(seen, uncached_tokens=seen.uncached_tokens + seen.cached_tokens, cached_tokens=0 * seen.cached_tokens)
    )

    assert uncached.fit.terms == ("base_ms", "ms_per_uncached_token", "ms_per_million_pairs")
    assert uncached.model.ms_per_cached_token == 0.0


def test_the_same_trace_gives_the_same_calibration() -> None:
    assert calibrate(_served()).as_record() == calibrate(_served()).as_record()


def _record(number: int, **observed: object) -> TraceRecord:
    block = TraceBlock("user", 100 + number, content_hash=f"h{number}")
    return replace(TraceRecord(f"r{number}", 1000.0 * number, (block,)), **observed)  # type: ignore[arg-type]


def test_what_a_record_does_not_say_is_skipped_and_counted() -> None:
    records = [
        _record(0, observed_ttft_ms=10.0, observed_prefix_hit_tokens=40),
        _record(1, observed_ttft_ms=10.0, observed_prefill_tokens=21, observed_prefix_hit_tokens=80),
        _record(2, observed_prefix_hit_tokens=0),
        _record(3, observed_ttft_ms=9.0),
        _record(4, observed_ttft_ms=9.0, observed_prefix_hit_tokens=500),
    ]
    seen = observations_from_records(records)

    assert seen.uncached_tokens.tolist() == [60, 21]
    assert seen.cached_tokens.tolist() == [40, 80]
    assert sorted(seen.skipped.values()) == [1, 1, 1]
    assert np.isnan(seen.total_ms).all()
    assert observations_from_trace(build_trace(records, "t")).uncached_tokens.tolist() == [60, 21]


def test_a_missing_count_is_zero_only_for_a_server_that_reports_others() -> None:
    silent = _record(0, observed_ttft_ms=9.0, metadata={"prompt_tokens": 130})
    hit = _record(1, observed_ttft_ms=5.0, observed_prefix_hit_tokens=64, observed_prefill_tokens=37)

    assert observations_from_records([silent]).skipped == {"the server did not report cached tokens": 1}
    both = observations_from_records([silent, hit])
    assert (both.uncached_tokens.tolist(), both.cached_tokens.tolist()) == ([130, 37], [0, 64])


def test_a_trace_without_cached_tokens_is_refused_with_the_reason() -> None:
    with pytest.raises(ContractError, match="did not report cached tokens"):
        calibrate_records([_record(number, observed_ttft_ms=9.0) for number in range(80)])


def test_the_files_hold_the_evidence_and_the_model_comes_back(found: Calibration, tmp_path: Path) -> None:
    written = write_calibration(found, tmp_path / "out")

    assert [path.name for path in written] == ["calibration.json", "calibration.md"]
    assert read_latency_model(written[0]) == (found.model, Engine())
    record = json.loads(written[0].read_text())
    assert len(record["requests"]) == 120
    assert summarize(found) == written[1].read_text()
    assert "On the latest 36 of 120 requests, held out" in summarize(found)


def test_files_that_are_no_calibration_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(ContractError, match=r"semantic_kv\.calibration\.v1"):
        read_latency_model(path)
    path.write_text("no json")
    with pytest.raises(ContractError, match="not JSON"):
        read_latency_model(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_latency_model(tmp_path / "absent.json")
