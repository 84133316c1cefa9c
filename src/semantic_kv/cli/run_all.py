"""``kvmend simulate run-all``: every experiment file of a folder, and the summary over all of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from semantic_kv.cli.arguments import add_work, run_options
from semantic_kv.cli.folders import new_folder, run_facts
from semantic_kv.experiment.config import ExperimentConfig, FileSource
from semantic_kv.experiment.config_file import load_config
from semantic_kv.experiment.run import run_study
from semantic_kv.experiment.study import Study
from semantic_kv.experiment.verdict import verdict_of
from semantic_kv.report.outputs import write_aggregate, write_study
from semantic_kv.shipped import EXPERIMENTS
from sembase.command_line import ExitCode, existing_folder
from sembase.errors import ConfigurationError
from sembase.streams import write_err, write_out

NAME: Final = "run-all"
SUMMARY: Final = (
    "Run every experiment of a folder and write aggregate_summary.csv, aggregate_summary.md and report.html."
)
EXAMPLES: Final = """\
  kvmend simulate run-all
  kvmend simulate run-all --traces ../traces --jobs 2
  kvmend simulate run-all --only low_memory_rag_stress legal_review_long_context"""


_HERE: Final = Path("configs/experiments")


def _default_folder() -> Path:
    return _HERE if _HERE.is_dir() else EXPERIMENTS


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config-dir",
        type=existing_folder,
        default=_default_folder(),
        metavar="DIR",
        help=f"folder of *.yaml experiments, run in order of name (default: {_HERE} where it exists, otherwise the "
        "experiments of this package)",
    )
    command.add_argument(
        "--output-dir",
        type=Path,
        default=Path("outputs/experiments"),
        metavar="DIR",
        help="for a folder per experiment, the summary and stored cells (default: %(default)s)",
    )
    command.add_argument(
        "--traces",
        type=existing_folder,
        metavar="DIR",
        help="folder of trace files; without it, experiments whose trace is not next to the config are skipped",
    )
    command.add_argument("--only", nargs="+", default=[], metavar="NAME", help="run these experiments only")
    add_work(command)


def execute(options: argparse.Namespace) -> ExitCode:
    traces = options.traces or options.config_dir
    configs = _chosen([load_config(path) for path in sorted(options.config_dir.glob("*.yaml"))], options.only)
    if not configs:
        raise ConfigurationError(f"no experiments (*.yaml) in {options.config_dir}")
    studies: list[Study] = []
    for config in configs:
        if isinstance(config.source, FileSource) and not (traces / config.source.path).is_file():
            if options.traces or options.only:
                raise ConfigurationError(f"{config.experiment}: trace '{traces / config.source.path}' does not exist")
            write_err(f"skipped {config.experiment}: trace {config.source.path} not found; set --traces DIR\n")
            continue
        study = run_study(config, run_options(options, options.output_dir, traces))
        write_study(study, new_folder(options.output_dir, config.experiment), run_facts())
        write_out(f"{config.experiment}: {verdict_of(study).headline}\n")
        studies.append(study)
    if not studies:
        raise ConfigurationError("no experiment was run: their traces were not found; set --traces DIR")
    write_aggregate(studies, options.output_dir, run_facts())
    write_out(f"summary: {options.output_dir / 'aggregate_summary.md'}, report: {options.output_dir / 'report.html'}\n")
    return ExitCode.OK


def _chosen(configs: list[ExperimentConfig], only: list[str]) -> list[ExperimentConfig]:
    known = [config.experiment for config in configs]
    for name in only:
        if name not in known:
            raise ConfigurationError(f"--only {name}: no such experiment; known: {', '.join(known)}")
    return [config for config in configs if not only or config.experiment in only]
