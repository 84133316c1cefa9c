"""Long prompts without an engine: growth per token, and what a declined reading leaves out."""

from __future__ import annotations

import pytest
from benchmarks.vllm.long_prompts import PARTS, LongReading, growth, report


def reading(tokens: int, *, load_ms: float | None, ours_ms: float = 30.0) -> LongReading:
    return LongReading(tokens, 1_000.0, 20.0, ours_ms, tokens, "", None, 1.0, load_ms, None)


def test_growth_is_of_the_time_per_token() -> None:
    load = PARTS["load and verification"]
    linear = [reading(size, load_ms=size / 1_000) for size in (1_000, 2_000, 4_000)]
    square = [reading(size, load_ms=size**2 / 1e6) for size in (1_000, 2_000, 4_000)]
    assert growth(linear, load) == pytest.approx(1.0)
    assert growth(square, load) == pytest.approx(4.0)


def test_a_part_that_was_not_measured_is_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = {
        verdict.name.partition(":")[0]: verdict
        for verdict in report([reading(1_000, load_ms=None), reading(4_000, load_ms=None, ours_ms=400.0)])
    }
    assert verdicts["gaps"].word == verdicts["load and verification"].word == "NOT MEASURED"
    assert verdicts["look-up"].holds
    assert not verdicts["whole, over an exact hit"].holds
    assert "4000" in capsys.readouterr().out
