"""Runners: processes and Ray give what one process gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from semantic_kv.experiment.config import CurvePlan, ExperimentConfig, PolicyChoice, WorkloadSource
from semantic_kv.experiment.figures import CellFigures
from semantic_kv.experiment.run import RunOptions, run_study
from semantic_kv.experiment.runners import InProcess, Processes, runner_named
from semantic_kv.experiment.study import Study
from sembase.errors import ConfigurationError

CONFIG = ExperimentConfig(
    experiment="small",
    description="small",
    source=WorkloadSource("low_memory_rag_stress", 4, 3),
    unit="tokens",
    capacities=(600, 1_200),
    policies=(PolicyChoice("lru"),),
    seeds=(1, 2),
    bounds=False,
    curve=CurvePlan((PolicyChoice("lru"),), (600, 900), (0.5,), 2),
)


def results_of(study: Study) -> dict[object, tuple[object, ...]]:
    """Everything except durations."""

    def known(figures: CellFigures) -> tuple[object, ...]:
        return figures.total, figures.batches, figures.labels, figures.evicted, figures.used_over_time

    return {cell: known(figures) for cell, figures in study.figures.items()}


def test_one_job_stays_in_this_process() -> None:
    assert isinstance(runner_named("processes", 1), InProcess)
    assert isinstance(runner_named("processes", 2), Processes)


def test_no_jobs_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        runner_named("processes", 0)


def test_an_unknown_runner_is_named() -> None:
    with pytest.raises(ConfigurationError, match="unknown runner 'slurm'; known: processes, ray"):
        runner_named("slurm", 2)


def test_processes_say_what_one_process_says(tmp_path: Path) -> None:
    one = run_study(CONFIG, RunOptions(tmp_path / "one", quiet=True))
    many = run_study(CONFIG, RunOptions(tmp_path / "many", runner=Processes(2), quiet=True))
    assert results_of(one) == results_of(many)
    assert not list((tmp_path / "many").glob(".traces-*"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_says_what_one_process_says(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    one = run_study(CONFIG, RunOptions(tmp_path / "one", quiet=True))
    many = run_study(CONFIG, RunOptions(tmp_path / "many", runner=runner_named("ray", 2), quiet=True))
    assert results_of(one) == results_of(many)
