"""``kvmend bench run-live-sglang``: replay a manifest against SGLang's own ``/generate``, flushed before each arm."""

from __future__ import annotations

import argparse
from typing import Final

from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError
from sembase.values import positive
from sembench.cli.live_arguments import (
    add_measuring_arguments,
    add_workload_arguments,
    chosen_arms,
    execute_live,
    live_run,
    measuring_options,
)

NAME: Final = "run-live-sglang"
SUMMARY: Final = "Replay a manifest against a running SGLang server with /generate, and /flush_cache before each arm."
_TIMEOUT_S: Final = 3600.0
_FLUSH: Final = "/flush_cache"


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_workload_arguments(command)
    command.add_argument(
        "--base-url", required=True, metavar="URL", help="the server's address, such as http://host:30000"
    )
    command.add_argument(
        "--donor-max-new-tokens",
        type=positive,
        default=1,
        metavar="N",
        help="maximum tokens generated per donor (default: 1)",
    )
    command.add_argument(
        "--recipient-max-new-tokens",
        type=positive,
        default=16,
        metavar="N",
        help="maximum tokens generated per recipient (default: 16)",
    )
    command.add_argument(
        "--no-flush-per-item", action="store_true", help="do not flush the cache between items; not with --paired"
    )
    add_measuring_arguments(command, _TIMEOUT_S)


def execute(options: argparse.Namespace) -> ExitCode:
    if options.no_flush_per_item and chosen_arms(options) != "warm":
        raise ConfigurationError("--no-flush-per-item leaves no arm cold; run without --paired and --cold-only")
    live = measuring_options(
        options,
        endpoint="sglang_generate",
        donor_max_tokens=options.donor_max_new_tokens,
        recipient_max_tokens=options.recipient_max_new_tokens,
        reset_per_item=not options.no_flush_per_item,
    )
    run = live_run(
        options,
        live,
        kind="live_sglang",
        base_url=options.base_url,
        reset_urls=(_FLUSH,),
        connector_audit=tuple(options.connector_audit),
    )
    return execute_live(run, NAME)
