"""``kvmend bench calibrate-noise-floor``: the same prompts cold twice, to measure how far equal requests differ."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from sembase.command_line import ExitCode, existing_file
from sembase.streams import write_err, write_out
from sembase.values import count, positive
from sembench.cli.live_arguments import add_header_argument, add_logprobs_argument, add_patience_arguments, live_run
from sembench.cli.output import require_other_file, require_writable
from sembench.console import Table, show
from sembench.console.table import number as shown
from sembench.console.table import percent
from sembench.live.calibrate import calibrate
from sembench.live.options import LiveOptions
from sembench.live.run import InterruptedRunError
from sembench.replay.partial import partial_path

NAME: Final = "calibrate-noise-floor"
SUMMARY: Final = "Send every prompt cold twice and measure KL, TTFT spread and greedy agreement of equal requests."
_TIMEOUT_S: Final = 900.0


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--manifest", required=True, type=existing_file, metavar="FILE", help="a manifest; its recipients are sent"
    )
    command.add_argument("--output", required=True, type=Path, metavar="FILE", help="the calibration to write (.json)")
    command.add_argument("--gateway-url", required=True, metavar="URL", help="the server's address")
    command.add_argument(
        "--endpoint",
        choices=("chat", "completions", "sglang_generate"),
        default="chat",
        help="API to use, the same as in the runs to calibrate (default: chat)",
    )
    command.add_argument("--model", metavar="NAME", help="model to request (default: the first one the server lists)")
    command.add_argument(
        "--reset-url",
        action="append",
        default=[],
        metavar="URL",
        help="POSTed before each reading; may be repeated; without it, each reading has its own tenant",
    )
    add_header_argument(command)
    command.add_argument("--max-items", type=positive, metavar="N", help="the first N items only")
    command.add_argument(
        "--max-tokens", type=positive, default=24, metavar="N", help="maximum tokens generated per prompt (default: 24)"
    )
    add_logprobs_argument(command, "for the KL between the readings", always=True)
    command.add_argument(
        "--block-size", type=positive, default=16, metavar="N", help="tokens per KV block (default: 16)"
    )
    command.add_argument("--seed", type=count, default=0, metavar="N", help="seed of the intervals (default: 0)")
    add_patience_arguments(command, _TIMEOUT_S)


def execute(options: argparse.Namespace) -> ExitCode:
    require_writable(options.output)
    for written in (options.output, partial_path(options.output)):
        require_other_file(written, options.manifest, "--manifest")
    live = LiveOptions(
        endpoint=options.endpoint,
        arms="cold_twice",
        block_size=options.block_size,
        recipient_max_tokens=options.max_tokens,
        top_logprobs=options.capture_logprobs,
        warm_up=options.warm_up,
        seed=options.seed,
    )
    resets = tuple(options.reset_url)
    run = live_run(options, live, kind="noise_floor", base_url=options.gateway_url, reset_urls=resets)
    try:
        record = calibrate(run)
    except InterruptedRunError as error:
        write_err(f"\nsembench: interrupted ({error}); run the same {NAME} with --resume to continue\n")
        return ExitCode.INTERRUPTED
    show(_table(record))
    write_out(f"calibration: {options.output}\n")
    return ExitCode.OK


def _table(record: dict[str, Any]) -> Table:
    spread = record["ttft_ratio_interval95"]
    lines = (
        ("mean KL", f"{shown(record['mean_kl_topk'], 6)} nats", shown(record["kl_n"])),
        ("95th percentile of a prompt's mean KL", f"{shown(record['p95_kl_topk'], 6)} nats", shown(record["kl_n"])),
        ("worst KL of any position", f"{shown(record['worst_kl_topk'], 6)} nats", shown(record["kl_n"])),
        ("TTFT ratio, median", shown(record["ttft_ratio_median"], 3), shown(record["ttft_ratio_n"])),
        (
            "TTFT ratio, 95 % of the prompts",
            "-" if spread is None else f"{spread[0]:.2f} - {spread[1]:.2f}",
            shown(record["ttft_ratio_n"]),
        ),
        ("identical answers", percent(record["greedy_agreement_rate"]), shown(record["clean_prompts"])),
    )
    notes = (
        f"Prompts {record['prompts']}: clean {record['clean_prompts']}, not cold {record['contaminated_prompts']}, "
        f"failed {record['failed_prompts']}, cached tokens not reported {record['unchecked_prompts']}.",
    )
    return Table("Two cold readings of the same prompts", ("figure", "value", "prompts"), lines, notes)
