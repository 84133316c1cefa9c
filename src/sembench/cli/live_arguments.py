"""Arguments shared by both live runners, and the steps around a run: checks before it, tables and notes after it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from sembase.command_line import ExitCode, existing_file
from sembase.streams import write_err, write_out
from sembase.values import amount, count, fraction, header, positive, positive_fraction, whole
from sembench.cli.output import require_other_file, require_writable
from sembench.console import show
from sembench.console.live import live_tables
from sembench.live.options import Arms, LiveOptions, LiveRun
from sembench.live.run import InterruptedRunError, run_live
from sembench.replay.partial import partial_path

_LOGPROBS: Final = 20
# With fewer tokens the KL is meaningless: two answers that share none of them would look alike.
_MIN_LOGPROBS: Final = 5


def add_workload_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--manifest", required=True, type=existing_file, metavar="FILE", help="a manifest of kvmend bench build"
    )
    command.add_argument("--output", required=True, type=Path, metavar="FILE", help="the result to write (.json)")
    command.add_argument("--model", metavar="NAME", help="model to request (default: the first one the server lists)")
    add_header_argument(command)
    command.add_argument("--max-items", type=positive, metavar="N", help="the first N items only")
    command.add_argument(
        "--block-size",
        type=positive,
        default=16,
        metavar="N",
        help="tokens per KV block of the engine; a cold request with more cached tokens was not cold (default: 16)",
    )
    command.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="the model's tokenizer.json or its directory: adds what an exact cache covers (default: none)",
    )


def add_header_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--header",
        action="append",
        default=[],
        type=header,
        metavar="'NAME: VALUE'",
        help="header sent with every request, such as an authorization; never written to a file; may be repeated",
    )


def add_logprobs_argument(command: argparse.ArgumentParser, purpose: str, *, always: bool = False) -> None:
    """``always``: log-probabilities are requested even without the option."""
    command.add_argument(
        "--capture-logprobs",
        type=whole(_MIN_LOGPROBS),
        nargs="?",
        const=_LOGPROBS,
        default=_LOGPROBS if always else None,
        metavar="K",
        help=f"log-probabilities of the K most likely tokens, at least {_MIN_LOGPROBS}, {purpose} "
        f"({'default' if always else 'K if not given'}: {_LOGPROBS})",
    )


def add_measuring_arguments(command: argparse.ArgumentParser, timeout_s: float) -> None:
    arms = command.add_mutually_exclusive_group()
    arms.add_argument(
        "--paired",
        action="store_true",
        help="measure every item cold and warm, in random order per item; streams are measured warm only",
    )
    arms.add_argument(
        "--cold-only", action="store_true", help="measure every item cold, without donors: one half for merge-results"
    )
    add_logprobs_argument(command, "for the KL between the arms")
    command.add_argument(
        "--connector-audit",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="the connector's event file: joined per request, and polled for registered donors before a recipient is "
        "sent; may be repeated, once per engine behind a router",
    )
    command.add_argument(
        "--check-propagation",
        type=fraction,
        default=0.0,
        metavar="FRACTION",
        help="fraction of blended items sent again with reuse off, to see what reached the exact cache (default: 0)",
    )
    command.add_argument(
        "--quality-threshold",
        type=positive_fraction,
        default=0.60,
        metavar="FRACTION",
        help="minimum score of an answer that keeps its quality (default: 0.60)",
    )
    command.add_argument(
        "--post-donor-delay-ms", type=amount, default=0.0, metavar="MS", help="pause after the donors (default: 0)"
    )
    command.add_argument(
        "--settle-ms",
        type=amount,
        default=5000.0,
        metavar="MS",
        help="maximum wait for the audit to report donors and recipient (default: 5000)",
    )
    command.add_argument("--seed", type=count, default=0, metavar="N", help="seed of the order of arms (default: 0)")
    add_patience_arguments(command, timeout_s)


def add_patience_arguments(command: argparse.ArgumentParser, timeout_s: float) -> None:
    """Arguments of every command that sends requests: warm-up, timeouts, resume."""
    command.add_argument(
        "--warm-up",
        type=count,
        default=2,
        metavar="N",
        help="rounds of a donor and a recipient before the first item (default: 2)",
    )
    command.add_argument(
        "--ready-seconds", type=amount, default=60.0, metavar="S", help="how long to wait for the server (default: 60)"
    )
    command.add_argument(
        "--timeout-seconds",
        type=amount,
        default=timeout_s,
        metavar="S",
        help=f"time limit of one request (default: {timeout_s:.0f})",
    )
    command.add_argument("--resume", action="store_true", help="continue an interrupted run from FILE.partial.jsonl")


def chosen_arms(options: argparse.Namespace) -> Arms:
    return "paired" if options.paired else "cold" if options.cold_only else "warm"


def live_run(options: argparse.Namespace, live: LiveOptions, **own: Any) -> LiveRun:
    """The run of a command; ``own`` holds what only that command sets."""
    return LiveRun(
        manifest=options.manifest,
        output=options.output,
        model=options.model,
        headers=tuple(options.header),
        timeout_s=options.timeout_seconds,
        ready_s=options.ready_seconds,
        max_items=options.max_items,
        resume=options.resume,
        options=live,
        **own,
    )


def measuring_options(options: argparse.Namespace, **own: Any) -> LiveOptions:
    """The values of ``add_workload_arguments`` and ``add_measuring_arguments``."""
    return LiveOptions(
        arms=chosen_arms(options),
        block_size=options.block_size,
        tokenizer=options.tokenizer,
        top_logprobs=options.capture_logprobs,
        quality_threshold=options.quality_threshold,
        post_donor_delay_ms=options.post_donor_delay_ms,
        settle_ms=options.settle_ms,
        check_propagation=options.check_propagation,
        warm_up=options.warm_up,
        seed=options.seed,
        **own,
    )


def execute_live(run: LiveRun, command: str) -> ExitCode:
    require_writable(run.output)
    for written in (run.output, partial_path(run.output)):
        require_other_file(written, run.manifest, "--manifest")
        for audit in filter(Path.exists, run.connector_audit):
            require_other_file(written, audit, "--connector-audit")
    try:
        result = run_live(run)
    except InterruptedRunError as error:
        partial = partial_path(run.output)
        kept = f"rows so far are in {partial}; " if partial.exists() else ""
        write_err(f"\nsembench: interrupted ({error}); {kept}run the same {command} with --resume to continue\n")
        return ExitCode.INTERRUPTED
    for table in live_tables(result):
        show(table)
    if run.connector_audit and not any(row["backend"] for row in result["requests"]):
        named = ", ".join(map(str, run.connector_audit))
        write_err(
            f"sembench: note: {named} has no event of any request; it must be the file set as 'events' in the "
            "connector's configuration\n"
        )
    write_out(f"result: {run.output}\n")
    return ExitCode.OK
