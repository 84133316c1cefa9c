"""``kvmend bench report``: results in, one self-contained HTML page out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode, existing_file
from sembase.errors import ConfigurationError
from sembase.files import replace_atomically
from sembase.streams import write_out
from sembench.cli.output import add_floor_argument, require_other_file, require_writable
from sembench.report.build import Sources, build_page
from sembench.report.png import write_pngs

NAME: Final = "report"
SUMMARY: Final = (
    "Write one self-contained HTML page about one or several results: no script, no network, no external font."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("results", nargs="*", type=existing_file, metavar="RESULT", help="results of a runner")
    command.add_argument("--html", required=True, type=Path, metavar="FILE", help="the page to write")
    command.add_argument("--png", type=Path, metavar="DIR", help="also write every chart as PNG, for slides")
    command.add_argument(
        "--compare",
        nargs=2,
        type=existing_file,
        metavar=("A", "B"),
        help="two results of one manifest: differences with intervals, and the items that flipped",
    )
    command.add_argument(
        "--gates",
        action="append",
        default=[],
        type=existing_file,
        metavar="FILE",
        help="a verdict (the output of assert-result-gates); may be repeated, each is shown with the result it judged",
    )
    command.add_argument(
        "--noise-floor", type=existing_file, metavar="FILE", help="a calibration of calibrate-noise-floor"
    )
    add_floor_argument(command)
    command.add_argument(
        "--engine-summary",
        action="append",
        default=[],
        type=existing_file,
        metavar="FILE",
        help="an engine summary; may be repeated",
    )
    command.add_argument("--load", type=existing_file, metavar="FILE", help="a result of run-load")
    command.add_argument("--title", metavar="TEXT", help="the page's title (default: the name of the result)")


def execute(options: argparse.Namespace) -> ExitCode:
    compared: list[Path] = options.compare or []
    results: list[Path] = list(options.results)
    if not results and not compared:
        raise ConfigurationError("nothing to report on: name a RESULT, or two with --compare A B")
    if compared and compared[0].samefile(compared[1]):
        raise ConfigurationError("--compare A B: both are the same file")
    sources = Sources(
        results=tuple(results),
        compared=(compared[0], compared[1]) if compared else None,
        verdicts=tuple(options.gates),
        noise_floor=options.noise_floor,
        floor_result=options.floor_result,
        engine_summaries=tuple(options.engine_summary),
        load=options.load,
        title=options.title,
    )
    require_writable(options.html)
    for given in sources.files():
        require_other_file(options.html, given, "an input")
    page = build_page(sources)
    with replace_atomically(options.html) as stream:
        stream.write(page.html().encode())
    write_out(f"page: {options.html}\n")
    if options.png is not None:
        written = write_pngs(page.charts, options.png, page.funnels)
        summary = f"{len(written)} PNG files in {options.png}" if written else "none, because there is no chart to draw"
        write_out(f"pictures: {summary}\n")
    return ExitCode.OK
