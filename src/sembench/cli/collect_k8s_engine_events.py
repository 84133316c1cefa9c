"""``kvmend bench collect-k8s-engine-events``: a pod's log fetched by kubectl, kept, and summarized."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import BinaryIO, Final, cast

from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError
from sembase.files import replace_atomically
from sembase.streams import write_err, write_out
from sembase.values import amount
from sembench.cli.summarize_engine_events import add_engine_argument, encode, report_counts
from sembench.engine_events.kubectl import PodLog, fetch
from sembench.engine_events.summarize import lines_of, summarize

NAME: Final = "collect-k8s-engine-events"
SUMMARY: Final = "Fetch an engine's log from Kubernetes (kubectl logs), keep it, and summarize it."


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_engine_argument(command)
    command.add_argument("--namespace", required=True, metavar="NAME", help="the pod's namespace")
    command.add_argument("--pod", required=True, metavar="NAME", help="the pod")
    command.add_argument("--container", metavar="NAME", help="its container (default: kubectl's choice)")
    command.add_argument(
        "--tail", type=int, default=2000, metavar="N", help="the last N lines; -1 for all (default: 2000)"
    )
    since = command.add_mutually_exclusive_group()
    since.add_argument("--since", metavar="DURATION", help="lines newer than this, such as 90s, 5m, 1h30m")
    since.add_argument("--since-time", metavar="TIME", help="lines since this time, such as 2026-01-31T09:30:00Z")
    command.add_argument("--output-log", required=True, type=Path, metavar="FILE", help="the unmodified log")
    command.add_argument("--output-summary", required=True, type=Path, metavar="FILE", help="its summary")
    command.add_argument(
        "--timeout-seconds", type=amount, default=120.0, metavar="S", help="time limit of kubectl (default: 120)"
    )


def execute(options: argparse.Namespace) -> ExitCode:
    log = PodLog(options.namespace, options.pod, options.container, options.tail, options.since, options.since_time)
    if options.output_log.absolute() == options.output_summary.absolute():
        raise ConfigurationError("--output-log and --output-summary name the same file: the log would be lost")
    for path in (options.output_log, options.output_summary):
        if path.is_dir():
            raise ConfigurationError(f"{path}: is a directory; name a file")
    with replace_atomically(options.output_summary) as summary_file:
        with replace_atomically(options.output_log) as log_file:
            fetch(log, cast(BinaryIO, log_file), timeout_seconds=options.timeout_seconds)
        with options.output_log.open("rb") as stream:
            summary = summarize(options.engine, lines_of(stream))
        summary_file.write(encode(summary).encode())
    report_counts(summary)
    if summary.events[0]["lines"] == options.tail:
        write_err(f"sembench: exactly --tail {options.tail} lines were returned; earlier ones may be missing\n")
    write_out(encode(summary, with_events=False))
    return ExitCode.OK
