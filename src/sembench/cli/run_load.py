"""``kvmend bench run-load``: load a live server, open or closed loop; report latencies and the client's lateness."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode, existing_file
from sembase.errors import ConfigurationError
from sembase.streams import write_err, write_out
from sembase.trace.locate import HELP as TRACE_HELP
from sembase.trace.locate import existing_trace, trace_files
from sembase.values import amount, count, positive, rate
from sembench.cli.live_arguments import add_header_argument
from sembench.cli.output import require_other_file, require_writable
from sembench.console import show
from sembench.http.request import PATHS
from sembench.load.prompts import DEFAULT_MAX_TOKENS, DEFAULT_PROMPT_TOKENS, WorkloadOptions, open_workload
from sembench.load.records import requests_path
from sembench.load.schedule import gamma_offsets, ramp_offsets
from sembench.load.session import LoadRun, run_load
from sembench.load.summary import Slo
from sembench.load.tables import tables
from sembench.result import write_result

NAME: Final = "run-load"
SUMMARY: Final = (
    "Load a live server, open or closed loop: TTFT, TPOT, ITL, E2E with intervals, goodput, client overhead."
)
# The options that are written to the result: no addresses and headers, which may reveal a machine or a secret.
_CONFIG: Final = (
    "rate",
    "burstiness",
    "concurrency",
    "ramp_up_seconds",
    "time_scale",
    "duration",
    "requests",
    "warm_up",
    "seed",
    "max_tokens",
    "max_prompt_tokens",
    "ignore_eos",
    "timeout_seconds",
    "slo_ttft_ms",
    "slo_tpot_ms",
)


# Options of one kind of loop: the option that selects the loop, and the default.
_SHAPES: Final = (("burstiness", "rate", 1.0), ("time_scale", "trace", 1.0), ("ramp_up_seconds", "concurrency", 0.0))


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--base-url", required=True, metavar="URL", help="the server, such as http://127.0.0.1:8000")
    command.add_argument("--output", required=True, type=Path, metavar="FILE", help="the result to write (.json)")
    command.add_argument("--model", metavar="NAME", help="model to request (default: the first one the server lists)")
    command.add_argument("--endpoint", choices=sorted(PATHS), default="chat", help="API to use (default: chat)")
    _add_schedule(command)
    _add_prompts(command)
    command.add_argument("--warm-up", type=count, default=0, metavar="N", help="requests before measuring (default: 0)")
    command.add_argument("--seed", type=count, default=0, metavar="N", help="seed of arrivals and prompts (default: 0)")
    command.add_argument("--slo-ttft-ms", type=rate, metavar="MS", help="goodput: maximum TTFT of a good request")
    command.add_argument("--slo-tpot-ms", type=rate, metavar="MS", help="goodput: maximum TPOT of a good request")
    command.add_argument(
        "--metrics-url", metavar="URL", help="Prometheus metrics of the server, scraped before and after (or /metrics)"
    )
    command.add_argument(
        "--timeout-seconds",
        type=rate,
        default=600.0,
        metavar="S",
        help="time limit of one request (default: 600)",
    )
    command.add_argument(
        "--ready-seconds", type=amount, default=60.0, metavar="S", help="maximum wait for the server (default: 60)"
    )
    add_header_argument(command)


def _add_schedule(command: argparse.ArgumentParser) -> None:
    how = command.add_mutually_exclusive_group(required=True)
    how.add_argument("--rate", type=rate, metavar="R", help="open loop: requests per second, independent of replies")
    how.add_argument("--concurrency", type=positive, metavar="N", help="closed loop: number of requests in flight")
    how.add_argument(
        "--trace",
        type=existing_trace,
        metavar="TRACE",
        help=f"open loop: times and lengths of a recorded trace: {TRACE_HELP}",
    )
    command.add_argument(
        "--burstiness",
        type=rate,
        metavar="B",
        help="shape of the gaps with --rate: 1 is Poisson, below 1 bursts, above 1 steadier (default: 1)",
    )
    command.add_argument(
        "--time-scale",
        type=rate,
        metavar="F",
        help="multiplies the times of --trace: 0.1 is ten times as fast (default: 1)",
    )
    command.add_argument(
        "--ramp-up-seconds",
        type=amount,
        metavar="S",
        help="spread the start of --concurrency (default: 0)",
    )
    command.add_argument("--duration", type=rate, metavar="S", help="seconds to send requests for")
    command.add_argument("--requests", type=positive, metavar="N", help="number of requests to send")


def _add_prompts(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--manifest", type=existing_file, metavar="FILE", help="send the recipients of a manifest, in order"
    )
    command.add_argument(
        "--prompt-tokens",
        type=positive,
        metavar="N",
        help=f"generate prompts of N tokens (default without --manifest or --trace: {DEFAULT_PROMPT_TOKENS})",
    )
    command.add_argument(
        "--max-prompt-tokens", type=positive, metavar="N", help="truncate longer prompts of --trace to N tokens"
    )
    command.add_argument(
        "--max-tokens",
        type=positive,
        metavar="N",
        help=f"maximum tokens to generate (default: {DEFAULT_MAX_TOKENS}; with --trace: as in the trace, if it says)",
    )
    command.add_argument("--ignore-eos", action="store_true", help="always generate --max-tokens tokens (vLLM, SGLang)")
    command.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="a model's tokenizer.json, for generated prompts of exact length (default: count words)",
    )
    command.add_argument("--tenant", metavar="NAME", help="tenant of prompts without one")


def execute(options: argparse.Namespace) -> ExitCode:
    _require_schedule(options)
    require_writable(options.output)
    given = [(options.manifest, "--manifest")] if options.manifest is not None else []
    given += [(file, "--trace") for file in trace_files(options.trace)] if options.trace is not None else []
    for file, option in given:
        for written in (options.output, requests_path(options.output)):
            require_other_file(written, file, option)
    result = asyncio.run(run_load(_run(options)))
    write_result(options.output, result)
    for table in tables(result):
        show(table)
    complete = result["run"]["complete"]
    write_out(f"{'result' if complete else 'partial result'}: {options.output}\n")
    write_out(f"requests: {requests_path(options.output)}\n")
    if not complete:
        return ExitCode.INTERRUPTED
    if not result["requests"]["ok"]:
        write_err("sembench: no request succeeded; see requests.by_status of the result\n")
        return ExitCode.ENVIRONMENT
    return ExitCode.OK


def _require_schedule(options: argparse.Namespace) -> None:
    """Rejects options of another kind of loop: they would have no effect but appear in the result."""
    for name, belongs, default in _SHAPES:
        if getattr(options, belongs) is not None:
            if getattr(options, name) is None:
                setattr(options, name, default)
        elif getattr(options, name) is not None:
            flag = name.replace("_", "-")
            raise ConfigurationError(f"--{flag} applies only to --{belongs}, which was not given")


def _run(options: argparse.Namespace) -> LoadRun:
    workload = open_workload(
        WorkloadOptions(
            manifest=options.manifest,
            trace=options.trace,
            prompt_tokens=options.prompt_tokens,
            max_prompt_tokens=options.max_prompt_tokens,
            max_tokens=options.max_tokens,
            tokenizer=options.tokenizer,
            tenant=options.tenant,
            seed=options.seed,
            requests=options.requests,
            duration_s=options.duration,
        )
    )
    offsets: Iterable[float] | None = None
    workers: tuple[float, ...] | None = None
    if options.rate is not None:
        offsets = gamma_offsets(options.rate, options.burstiness, options.seed)
    elif workload.trace is not None:
        offsets = [entry.at_s * options.time_scale for entry in workload.trace]
    else:
        workers = tuple(ramp_offsets(options.concurrency, options.ramp_up_seconds))
    config = {name: getattr(options, name) for name in _CONFIG}
    return LoadRun(
        base_url=options.base_url,
        model=options.model,
        endpoint=options.endpoint,
        output=options.output,
        prompts=workload.prompts,
        warm_up_prompts=workload.warm_up_prompts,
        limit=workload.limit,
        slo=Slo(options.slo_ttft_ms, options.slo_tpot_ms),
        timeout_s=options.timeout_seconds,
        ready_s=options.ready_seconds,
        config={**config, "workload": workload.source},
        offsets_s=offsets,
        first_offsets_s=workers,
        warm_up=options.warm_up,
        ignore_eos=options.ignore_eos,
        metrics_url=options.metrics_url,
        headers=dict(options.header),
    )
