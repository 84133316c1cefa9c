"""Who wins and why, on made-up figures where the answer is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from semantic_kv.experiment.aggregate import COLUMNS, aggregate_rows
from semantic_kv.experiment.cells import Cell, cells_of, seed_trace
from semantic_kv.experiment.config import Ablation, ExperimentConfig, PolicyChoice, Published, WorkloadSource
from semantic_kv.experiment.config_file import load_config
from semantic_kv.experiment.figures import BoundFigures, CellFigures, Figures, Tally
from semantic_kv.experiment.run import RunOptions, run_study
from semantic_kv.experiment.study import Study, TraceFacts
from semantic_kv.experiment.verdict import MODELLED, TIE, verdict_of

CONFIG = ExperimentConfig(
    experiment="made_up",
    description="made up",
    source=WorkloadSource("low_memory_rag_stress"),
    unit="tokens",
    capacities=(1_000,),
    policies=(PolicyChoice("lru"), PolicyChoice("adaptive_semantic", "score")),
    seeds=tuple(range(6)),
    models=("prefix_tree",),
    ablation=Ablation(("always", "second_use"), ("lru", "s3fifo")),
    published=Published(96.47, 149.94, 0.6005, 0.3677),
)


def figures(hit_ratio: float) -> CellFigures:
    hits = round(1_000 * hit_ratio)
    total = Tally(100, 1_000, hits, 10_000, 10 * hits, 100 * 80.0 + 0.8 * (10_000 - 10 * hits))
    return CellFigures(total, 5, 6, 7, 80.0, 90.0, 95.0, (total,), (), (), ((0, 0), (99, 900)), None, 0.1)


def bound(hit_ratio: float) -> BoundFigures:
    hits = round(10_000 * hit_ratio)
    return BoundFigures("bound", 100, 1_000, None, 10_000, hits, 100 * 80.0 + 0.8 * (10_000 - hits), 0.1)


def figures_of(cell: Cell, hit_ratio: float) -> Figures:
    return bound(hit_ratio) if isinstance(cell.task, str) else figures(hit_ratio)


def study_with(hit_ratios: dict[str, float], wobble: dict[str, float] | None = None) -> Study:
    """``wobble`` is added on odd seeds and taken off on even ones."""
    config = CONFIG
    names = {"lru": 0.4, "clairvoyant": 0.8, "ceiling": 0.9, **hit_ratios}
    cells: dict[Cell, Figures] = {}
    for cell in cells_of(config):
        shift = (wobble or {}).get(cell.name, 0.0) * (1 if cell.seed % 2 else -1)
        cells[cell] = figures_of(cell, names.get(cell.name, 0.1) + shift)
    facts = [TraceFacts(seed_trace(config, seed), "t", "d", 100, 1_000, 500, 10_000, None) for seed in config.seeds]
    return Study(config, facts, cells)


def test_lru_wins_is_stated_first() -> None:
    verdict = verdict_of(study_with({"s3fifo": 0.3}))
    assert verdict.headline.startswith("LRU wins")
    assert "LRU wins; the next, s3fifo, is" in verdict.sentences[0]
    assert "slower (modelled TTFT)" in verdict.sentences[0]


def test_the_gain_is_admission() -> None:
    verdict = verdict_of(study_with({"lru+second_use": 0.6, "s3fifo": 0.41}))
    assert "lru+second_use wins" in verdict.sentences[0]
    assert "it comes from admission, not eviction" in verdict.sentences[0]
    assert "50 % of the way to the bound" in verdict.sentences[0]
    assert "No policy can hit more than 80.00 % of the tokens." in verdict.sentences[0]


def test_the_gain_is_eviction() -> None:
    verdict = verdict_of(study_with({"s3fifo": 0.6, "lru+second_use": 0.41}))
    assert "it comes from eviction, not admission" in verdict.sentences[0]


def test_where_either_axis_alone_comes_near_neither_is_denied() -> None:
    verdict = verdict_of(study_with({"s3fifo+second_use": 0.62, "s3fifo": 0.58, "lru+second_use": 0.61}))
    assert "either alone gets most of it" in verdict.sentences[0]


def test_it_takes_both() -> None:
    verdict = verdict_of(study_with({"s3fifo+second_use": 0.7, "s3fifo": 0.5, "lru+second_use": 0.5}))
    assert "both are needed" in verdict.sentences[0]


def test_a_policy_ahead_within_chance_has_not_beaten_lru() -> None:
    """Better by 0.02 on average, but by plus and minus 0.2 from seed to seed."""
    verdict = verdict_of(study_with({"s3fifo": 0.42}, {"s3fifo": 0.2}))
    assert verdict.settings[0].lru_wins
    assert verdict.headline.startswith("No policy is proven better than LRU")
    assert "no policy is proven better than LRU: s3fifo is" in verdict.sentences[0]
    assert "ahead within chance" in verdict.sentences[0]


def test_a_tie_is_no_win() -> None:
    verdict = verdict_of(study_with({"s3fifo": 0.4001}))
    assert verdict.settings[0].lru_wins
    assert "ties" in verdict.sentences[0]


def test_lru_wins_elsewhere_come_before_losses() -> None:
    study = study_with({"s3fifo": 0.6})
    config = replace(study.config, capacities=(1_000, 2_000))
    found: dict[Cell, Figures] = {}
    for cell in cells_of(config):
        other = 0.6 if cell.capacity == 1_000 and cell.name == "s3fifo" else 0.1
        known = {"lru": 0.4, "clairvoyant": 0.8, "ceiling": 0.9}
        found[cell] = figures_of(cell, known.get(cell.name, other))
    verdict = verdict_of(Study(config, study.traces, found))
    assert "capacity 2,000: LRU wins" in verdict.sentences[0]
    assert "capacity 1,000: s3fifo wins" in verdict.sentences[1]
    assert verdict.headline.startswith("LRU wins in 1 of 2 settings.")


def test_regret_and_headroom() -> None:
    study = study_with({"s3fifo": 0.6})
    ranked = study.result_of(("prefix_tree", 1_000), PolicyChoice("s3fifo"))
    assert ranked is not None
    assert ranked.regret == pytest.approx(0.2)
    assert ranked.headroom_share == pytest.approx(0.5)
    assert ranked.total.references == 6_000


def test_no_headroom_is_none_and_not_zero() -> None:
    ranked = study_with({"clairvoyant": 0.4}).baseline(("prefix_tree", 1_000))
    assert ranked.headroom_share is None


def test_aggregate_rows_hold_the_promised_columns_first() -> None:
    assert COLUMNS[:8] == (
        "experiment",
        "best_policy_by_avg_ttft",
        "adaptive_avg_ttft",
        "lru_avg_ttft",
        "adaptive_relative_ttft_improvement_vs_lru",
        "adaptive_hit_rate",
        "lru_hit_rate",
        "adaptive_relative_hit_rate_improvement_vs_lru",
    )
    (row,) = aggregate_rows(study_with({"adaptive_semantic+score": 0.2, "lru+second_use": 0.6}))
    assert row.best_policy_by_avg_ttft == "lru+second_use"
    assert row.adaptive_hit_rate == pytest.approx(0.2)
    assert row.adaptive_relative_hit_rate_improvement_vs_lru == pytest.approx(-0.5)
    assert row.lru_with_admission == "lru+second_use"
    assert row.published_improvement == pytest.approx(0.3566, abs=1e-4)


def test_where_lru_wins_it_is_the_best_policy() -> None:
    (row,) = aggregate_rows(study_with({"s3fifo": 0.3}))
    assert row.lru_wins
    assert row.best_policy_by_avg_ttft == "lru"


def test_modelled_figures_are_called_modelled() -> None:
    assert "modelled" in MODELLED
    assert "not measured" in MODELLED


def test_a_study_in_which_lru_hits_all_there_is_says_first_that_it_teaches_nothing() -> None:
    verdict = verdict_of(study_with({"lru": 0.9, "clairvoyant": 0.9, "ceiling": 0.9}))
    assert verdict.headline.startswith("Nothing can be learned here")
    assert verdict.sentences[0].endswith("Nothing can be learned at this capacity.")


def test_a_study_in_which_all_policies_tie_teaches_nothing() -> None:
    ties = dict.fromkeys(("adaptive_semantic+score", "lru+second_use", "s3fifo", "s3fifo+second_use"), 0.4)
    assert verdict_of(study_with(ties)).headline.startswith("Nothing can be learned here")
    assert not verdict_of(study_with(ties | {"s3fifo": 0.3})).settings[0].is_empty


SHIPPED = sorted((Path(__file__).parents[3] / "configs" / "experiments").glob("*.yaml"))
GENERATED = [path for path in SHIPPED if isinstance(load_config(path).source, WorkloadSource)]


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.stem)
def test_the_policies_of_every_shipped_study_differ(path: Path, tmp_path: Path) -> None:
    """One seed and no ablation; the studies of published traces need their files."""
    config = load_config(path)
    config = replace(config, seeds=config.seeds[:1], models=("prefix_tree",), ablation=None, curve=None)
    study = run_study(config, RunOptions(tmp_path, quiet=True))
    for judged in verdict_of(study).settings:
        assert not judged.is_empty
        others = [each for each in study.at(judged.setting) if each.choice != PolicyChoice("lru")]
        differing = [each for each in others if abs(each.improvement) > TIE]
        assert len(differing) >= len(others) / 2
        bounds = study.bounds(judged.setting)
        assert bounds is not None
        assert judged.lru.share < bounds.ceiling.share("tokens") - 0.05
