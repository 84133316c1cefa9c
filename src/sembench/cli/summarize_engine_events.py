"""``kvmend bench summarize-engine-events``: a log or event stream in, the summary that gates read out."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode, existing_file
from sembase.files import replace_atomically
from sembase.streams import write_err, write_out
from sembench.cli.output import require_other_file, require_writable
from sembench.engine_events.dialects import DIALECTS
from sembench.engine_events.summarize import lines_of, summarize
from sembench.engine_events.summary import EngineSummary

NAME: Final = "summarize-engine-events"
SUMMARY: Final = "Count what an engine's log or event stream confirms, joined per request."
STDIN: Final = Path("-")


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_engine_argument(command)
    command.add_argument(
        "--input", required=True, type=_file_or_stdin, metavar="FILE", help="the log or event stream; - for stdin"
    )
    command.add_argument(
        "--output", type=Path, metavar="FILE", help="where to write the summary; it is also printed, without its events"
    )


def add_engine_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--engine",
        required=True,
        choices=DIALECTS.names(),
        help="engine whose lines to parse; semblend: the connector's event stream",
    )


def execute(options: argparse.Namespace) -> ExitCode:
    if options.output is not None:
        require_writable(options.output)
        if options.input != STDIN:
            require_other_file(options.output, options.input, "--input")
    with nullcontext(sys.stdin.buffer) if options.input == STDIN else options.input.open("rb") as stream:
        summary = summarize(options.engine, lines_of(stream))
    if options.output is not None:
        with replace_atomically(options.output) as file:
            file.write(encode(summary).encode())
    report_counts(summary)
    write_out(encode(summary, with_events=options.output is None))
    return ExitCode.OK


def encode(summary: EngineSummary, *, with_events: bool = True) -> str:
    whole = summary.to_json()
    shown = whole if with_events else {name: value for name, value in whole.items() if name != "events"}
    return json.dumps(shown, indent=2, allow_nan=False) + "\n"


def report_counts(summary: EngineSummary) -> None:
    """Reports on stderr what was read; a log without a parsed line is probably the wrong log."""
    read = summary.events[0]
    write_err(
        f"sembench: {read['lines']} lines: {read['understood']} of the {summary.engine} dialect, "
        f"{read['damaged']} damaged, {read['other']} others; {len(summary.errors) + read['errors_left_out']} errors\n"
    )
    if not read["understood"]:
        write_err(f"sembench: no line was recognized; is this a {summary.engine} log, and is the connector enabled?\n")
    if read["events_left_out"]:
        write_err(f"sembench: {read['events_left_out']} events are counted but not listed: the log is too long\n")


def _file_or_stdin(text: str) -> Path:
    return STDIN if text == str(STDIN) else existing_file(text)
