"""The noise floor: what two cold readings give, what is kept out of it, and that the gates can read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.blending_server import running

from sembench.cli.main import main
from sembench.gates.calibration import read_noise_floor
from sembench.live.calibrate import summarize_readings
from sembench.manifest import WorkloadItem, write_manifest
from sembench.metrics.rows import ArmRow, PairRow, RequestRow


def reading(number: int, first: dict[str, Any], second: dict[str, Any], kl: float | None = 0.0) -> RequestRow:
    arms = [
        ArmRow(
            **{"request_id": f"r{number}", "status": "ok", "ttft_ms": 10.0, "cached_tokens": 0, "text": "x", **values}
        )
        for values in (first, second)
    ]
    pair = PairRow(
        warm_first=False, mean_kl=kl, worst_kl=None if kl is None else 2 * kl, compared_positions=4, agreed_tokens=4
    )
    return RequestRow(
        item_id=f"i{number}",
        dataset="d",
        source_id="s",
        transform="t",
        negative_control=False,
        tenant=None,
        stream_id=None,
        prompt_tokens=64,
        total_blocks=4,
        cold=arms[0],
        warm=arms[1],
        pair=pair,
    )


def test_floor_figures() -> None:
    rows = [reading(n, {"ttft_ms": 10.0 + n}, {}, kl=0.01 * n) for n in range(10)]
    found = summarize_readings(rows, block_size=16, seed=0)
    assert found["mean_kl_topk"] == pytest.approx(0.045)
    assert found["p95_kl_topk"] == pytest.approx(0.09)
    assert found["worst_kl_topk"] == pytest.approx(0.18)
    assert found["greedy_agreement_rate"] == 1.0
    assert (found["prompts"], found["clean_prompts"], found["kl_n"], found["ttft_ratio_n"]) == (10, 10, 10, 10)
    low, high = found["ttft_ratio_interval95"]
    assert low < found["ttft_ratio_median"] < high


def test_a_drift_between_the_readings_is_no_ratio() -> None:
    """A server that gets faster all the time must not give a floor that looks like a speedup."""
    rows = [reading(n, {"ttft_ms": 20.0}, {"ttft_ms": 10.0}) for n in range(200)]
    ratios = summarize_readings(rows, block_size=16, seed=0)
    assert ratios["ttft_ratio_interval95"] == [0.5, 2.0]


def test_what_was_not_cold_or_failed_is_left_out_and_counted() -> None:
    rows = [
        reading(0, {}, {}, kl=0.5),
        reading(1, {"cached_tokens": 17}, {}, kl=9.0),
        reading(2, {}, {"cached_tokens": 32}, kl=9.0),
        reading(3, {}, {"status": "timeout", "ttft_ms": None}, kl=None),
        reading(4, {}, {"cached_tokens": None, "text": "y"}, kl=0.7),
    ]
    found = summarize_readings(rows, block_size=16, seed=0)
    assert found["mean_kl_topk"] == pytest.approx(0.6)
    assert found["clean_prompts"] == 2
    assert found["contaminated_prompts"] == 2
    assert found["failed_prompts"] == 1
    assert found["unchecked_prompts"] == 1
    assert found["greedy_agreement_rate"] == 0.5


def test_nothing_measured_is_none() -> None:
    found = summarize_readings([reading(0, {"status": "timeout"}, {}, kl=None)], block_size=16, seed=0)
    assert found["mean_kl_topk"] is None
    assert found["ttft_ratio_interval95"] is None
    assert found["greedy_agreement_rate"] is None


@pytest.fixture
def prompts(tmp_path: Path, fixture_items: Sequence[WorkloadItem]) -> Path:
    path = tmp_path / "m.jsonl"
    write_manifest(path, [item for item in fixture_items if item.source_id == "ferry"][:5])
    return path


def command(prompts: Path, url: str, *flags: str) -> list[str]:
    output = str(prompts.with_name("c.json"))
    return ["calibrate-noise-floor", "--manifest", str(prompts), "--output", output, "--gateway-url", url, *flags]


@pytest.mark.parametrize("flags", [("--reset-url", "/reset_prefix_cache?reset_external=true"), ()])
def test_a_deterministic_server_has_no_noise(
    prompts: Path, tmp_path: Path, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "ids.txt"
    with running("--log", log) as url:
        assert main(command(prompts, url, *flags)) == 0
    record = json.loads(prompts.with_name("c.json").read_text())
    assert record["calibration_version"] == "sembench.calibration.v1"
    assert read_noise_floor(prompts.with_name("c.json")).mean_kl == 0.0
    assert record["clean_prompts"] == record["prompts"] == 5
    assert record["greedy_agreement_rate"] == 1.0
    assert record["engine"]["version"] == "1.2.3"
    assert len(record["readings"]) == 5
    asked = [name for name in log.read_text().split() if name.startswith(("cold.", "again."))]
    assert len(asked) == 10
    assert not [name for name in log.read_text().split() if name.startswith("donor.")]
    assert "Two cold readings" in capsys.readouterr().out


def test_a_server_that_cannot_be_emptied_gives_no_floor(prompts: Path) -> None:
    with running("--deaf") as url:
        assert main(command(prompts, url, "--reset-url", "/reset_prefix_cache")) == 0
    record = json.loads(prompts.with_name("c.json").read_text())
    assert record["contaminated_prompts"] == 5
    assert record["mean_kl_topk"] is None
    assert read_noise_floor(prompts.with_name("c.json")).mean_kl is None
