"""``kvmend bench run-live-gateway``: replay a manifest against any OpenAI-compatible server."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode, existing_file
from sembase.errors import ConfigurationError
from sembase.values import positive
from sembench.cli.live_arguments import (
    add_measuring_arguments,
    add_workload_arguments,
    execute_live,
    live_run,
    measuring_options,
)
from sembench.flips import lost_items
from sembench.result import read_result

NAME: Final = "run-live-gateway"
SUMMARY: Final = (
    "Replay a manifest against a running OpenAI-compatible server: TTFT, answers and confirmed reuse, cold and warm."
)
_TIMEOUT_S: Final = 900.0


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_workload_arguments(command)
    command.add_argument(
        "--gateway-url", required=True, metavar="URL", help="the server's address, such as http://host:8000"
    )
    command.add_argument("--donor-url", metavar="URL", help="where donors are sent (default: --gateway-url)")
    command.add_argument(
        "--endpoint", choices=("chat", "completions"), default="chat", help="API to use (default: chat)"
    )
    command.add_argument("--tenant", metavar="NAME", help="tenant of items without one")
    command.add_argument("--template", metavar="NAME", help="chat template of items without one")
    command.add_argument(
        "--donor-max-tokens",
        type=positive,
        default=1,
        metavar="N",
        help="maximum tokens generated per donor (default: 1)",
    )
    command.add_argument(
        "--recipient-max-tokens",
        type=positive,
        default=24,
        metavar="N",
        help="maximum tokens generated per recipient (default: 24)",
    )
    command.add_argument(
        "--reset-url",
        action="append",
        default=[],
        metavar="URL",
        help="POSTed before each arm to empty all caches, donors included; may be repeated; a path is relative to "
        "--gateway-url",
    )
    command.add_argument(
        "--recipient-reset-url",
        action="append",
        default=[],
        metavar="URL",
        help="POSTed after the donors to empty only the exact cache, so that savings beyond it show; may be repeated",
    )
    command.add_argument(
        "--concurrency",
        type=positive,
        default=1,
        metavar="N",
        help="items in parallel; more than 1 only without reset URLs (default: 1)",
    )
    command.add_argument(
        "--metrics-url", metavar="URL", help="Prometheus metrics of the engine, read before and after the run"
    )
    command.add_argument(
        "--only-lost-in",
        type=existing_file,
        metavar="RESULT",
        help="measure only the items whose answer was lost or became stale in this result of the same manifest: with "
        "--cold-only a floor in a fraction of the time",
    )
    add_measuring_arguments(command, _TIMEOUT_S)


def execute(options: argparse.Namespace) -> ExitCode:
    live = measuring_options(
        options,
        endpoint=options.endpoint,
        donor_max_tokens=options.donor_max_tokens,
        recipient_max_tokens=options.recipient_max_tokens,
        tenant=options.tenant,
        template=options.template,
        concurrency=options.concurrency,
    )
    run = live_run(
        options,
        live,
        kind="live_gateway",
        base_url=options.gateway_url,
        donor_url=options.donor_url,
        reset_urls=tuple(options.reset_url),
        recipient_reset_urls=tuple(options.recipient_reset_url),
        metrics_url=options.metrics_url,
        connector_audit=tuple(options.connector_audit),
        only=None if options.only_lost_in is None else _lost_in(options.only_lost_in),
    )
    return execute_live(run, NAME)


def _lost_in(path: Path) -> frozenset[str]:
    result, rows = read_result(path)
    lost = lost_items(rows, block_size=result["config"]["block_size"])
    if not lost:
        raise ConfigurationError(f"{path}: no answer was lost and none became stale, so a floor has nothing to decide")
    return lost
