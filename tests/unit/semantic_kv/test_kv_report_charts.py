"""Figures never read like zero when they are not, and heat follows the gain."""

from __future__ import annotations

from pathlib import Path

from semantic_kv.experiment.config import ExperimentConfig, PolicyChoice, WorkloadSource
from semantic_kv.experiment.run import RunOptions, run_study
from semantic_kv.report.ablation import heat
from semantic_kv.report.charts_policy import regret_chart, ttft_chart
from semantic_kv.report.formats import change, milliseconds, percent, tick_count


def test_what_is_not_zero_never_reads_like_zero() -> None:
    assert percent(0.0001) == "< 0.1 %"
    assert percent(-0.0001) == "> \N{MINUS SIGN}0.1 %"
    assert percent(0.0) == "0.0 %"
    assert percent(None) == "not measured"
    assert change(-0.0114, 2) == "\N{MINUS SIGN}1.14 %"
    assert milliseconds(149.94) == "149.94 ms"
    assert [tick_count(value) for value in (500, 5_000, 2e6)] == ["500", "5K", "2M"]


def test_heat_grows_with_the_gain_and_is_cold_within_a_tie() -> None:
    assert [heat(gain) for gain in (0.0005, 0.01, 0.05, 0.2, 0.5)] == [0, 1, 2, 3, 4]
    assert [heat(-gain) for gain in (0.0005, 0.01, 0.5)] == [0, -1, -4]


def test_where_nothing_beats_lru_the_charts_say_so_once(tmp_path: Path) -> None:
    config = ExperimentConfig(
        experiment="roomy",
        description="room for all",
        source=WorkloadSource("low_memory_rag_stress", 4, 3),
        unit="tokens",
        capacities=(10**9,),
        policies=(PolicyChoice("lru"), PolicyChoice("fifo")),
        models=("prefix_tree",),
    )
    study = run_study(config, RunOptions(tmp_path, quiet=True))
    regret = regret_chart(study)
    assert ttft_chart(study).message.startswith("No policy is better than LRU with ")
    assert regret is not None
    assert regret.message == "Regret in hit tokens: LRU 0.0 %, no policy has less regret."
