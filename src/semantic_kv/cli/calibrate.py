"""``kvmend simulate calibrate``: a trace with observed TTFT in, a latency model with its evidence out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from semantic_kv.calibrate import (
    FILES,
    Calibration,
    FitOptions,
    calibrate_records,
    calibrate_trace,
    summarize,
    write_calibration,
)
from semantic_kv.shipped import EXAMPLE, trace_or_example
from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError
from sembase.latency import Engine
from sembase.streams import write_out
from sembase.trace.formats import FORMATS
from sembase.trace.load import load_trace, read_records, sniff_format
from sembase.trace.locate import HELP as TRACE_HELP
from sembase.trace.locate import trace_files
from sembase.values import positive, positive_fraction

NAME: Final = "calibrate"
SUMMARY: Final = (
    "Fit the latency model to a trace with observed TTFT and test it on the latest requests, held out of the fit."
)
EXAMPLES: Final = """\
  kvmend simulate calibrate --trace served.jsonl --output-dir calibration --pass-tokens 8192
  kvmend simulate replay --trace served.jsonl --cache-token-budget 50k --latency-model calibration/calibration.json"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--trace",
        required=True,
        type=trace_or_example,
        metavar="TRACE",
        help=f"{TRACE_HELP}, or {EXAMPLE!r}, with observed_ttft_ms",
    )
    command.add_argument("--format", metavar="NAME", help="trace format (default: detected from the first line)")
    command.add_argument(
        "--output-dir",
        type=Path,
        default=Path("outputs/calibration"),
        metavar="DIR",
        help="folder of the calibration (default: %(default)s)",
    )
    command.add_argument(
        "--held-out-share",
        type=positive_fraction,
        default=0.3,
        metavar="R",
        help="fraction of the requests, the latest, held out of the fit (default: %(default)g)",
    )
    command.add_argument(
        "--pass-tokens",
        type=positive,
        default=Engine().pass_tokens,
        metavar="N",
        help="max_num_batched_tokens of the engine (default: %(default)s)",
    )
    command.add_argument("--overwrite", action="store_true", help="replace an existing calibration in --output-dir")


def execute(options: argparse.Namespace) -> ExitCode:
    _require_no_calibration(options.output_dir, overwrite=options.overwrite)
    wanted = FitOptions(options.held_out_share, Engine(pass_tokens=options.pass_tokens))
    found = _calibrated(options.trace, options.format, wanted)
    written = write_calibration(found, options.output_dir)
    write_out(summarize(found).rstrip() + "\n")
    write_out("".join(f"written: {path}\n" for path in written))
    return ExitCode.OK


def _require_no_calibration(folder: Path, *, overwrite: bool) -> None:
    """Checked before the fit, so that an existing calibration is never replaced by accident."""
    kept = [name for name in FILES if (folder / name).exists()]
    if kept and not overwrite:
        raise ConfigurationError(
            f"--output-dir {folder} already contains {' and '.join(kept)}; choose another folder, or pass --overwrite"
        )


def _calibrated(path: Path, name: str | None, options: FitOptions) -> Calibration:
    """Uses records if the format has them: columns have no total latency, so decoding could not be fitted."""
    if FORMATS.get(name or sniff_format(trace_files(path)[0])).records is None:
        return calibrate_trace(load_trace(path, name), options)
    return calibrate_records(read_records(path, name), name=path.name, options=options)
