"""``kvmend simulate run``: one experiment file in, one folder of results out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from semantic_kv.cli.arguments import add_work, run_options
from semantic_kv.cli.folders import new_folder, run_facts
from semantic_kv.experiment.config_file import load_config
from semantic_kv.experiment.run import run_study
from semantic_kv.experiment.verdict import MODELLED, verdict_of
from semantic_kv.report.outputs import write_study
from semantic_kv.shipped import experiment_file, experiment_names
from sembase.command_line import ExitCode, existing_folder
from sembase.streams import write_out

NAME: Final = "run"
SUMMARY: Final = "Run one experiment: all its policies, cache models, capacities and seeds, with bounds and a report."
EXAMPLES: Final = """\
  kvmend simulate run --config low_memory_rag_stress
  kvmend simulate run --config mooncake --traces ../traces --jobs 2
  kvmend simulate run --config my_experiment.yaml"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        required=True,
        type=experiment_file,
        metavar="FILE",
        help=f"an experiment (YAML), or the name of a shipped one: {', '.join(experiment_names())}",
    )
    command.add_argument(
        "--output-dir",
        type=Path,
        default=Path("outputs/experiments"),
        metavar="DIR",
        help="for <timestamp>_<experiment>/ and stored cells (default: %(default)s)",
    )
    command.add_argument(
        "--traces", type=existing_folder, metavar="DIR", help="folder of the trace file (default: that of the config)"
    )
    add_work(command)


def execute(options: argparse.Namespace) -> ExitCode:
    config = load_config(options.config)
    traces = options.traces or options.config.parent
    study = run_study(config, run_options(options, options.output_dir, traces))
    folder = new_folder(options.output_dir, config.experiment)
    write_study(study, folder, run_facts())
    verdict = verdict_of(study)
    write_out(f"{verdict.headline}\n" + "".join(f"- {sentence}\n" for sentence in verdict.sentences))
    write_out(f"{MODELLED}\nresults: {folder}\n")
    return ExitCode.OK
