"""``kvmend simulate collect``: requests to a server (or the mock), a trace with observed times out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from semantic_kv.collect import CollectOptions, CollectSummary, PlanOptions, collect_from_mock, collect_from_server
from semantic_kv.collect.request import Served
from sembase.command_line import ExitCode, existing_file
from sembase.progress import count_up
from sembase.streams import write_out
from sembase.trace.locate import existing_trace
from sembase.values import amount, header, positive

NAME: Final = "collect"
SUMMARY: Final = (
    "Collect a trace with observed TTFT from an OpenAI-compatible server, or from a mock. It only observes."
)
EXAMPLES: Final = """\
  kvmend simulate collect --mock --output mock.jsonl
  kvmend simulate collect --base-url http://localhost:8001 --prompts texts.jsonl --requests 200 --output served.jsonl
  kvmend simulate calibrate --trace served.jsonl --output-dir calibration"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    server = command.add_mutually_exclusive_group(required=True)
    server.add_argument("--base-url", metavar="URL", help="a server with /v1/chat/completions")
    server.add_argument("--mock", action="store_true", help="no server: simulated time; every record is marked as mock")
    command.add_argument("--output", required=True, type=Path, metavar="FILE.jsonl", help="the trace to write")
    command.add_argument(
        "--prompts",
        type=existing_trace,
        metavar="FILE",
        help="texts to send, or a recorded trace with text (default: built-in text)",
    )
    command.add_argument("--model", metavar="NAME", help="model to request (default: the first one the server lists)")
    command.add_argument(
        "--header",
        action="append",
        default=[],
        type=header,
        metavar="NAME:VALUE",
        help="header sent with every request; may be repeated",
    )
    command.add_argument(
        "--timeout-s", type=amount, default=300.0, metavar="S", help="time limit of one request (default: %(default)g)"
    )
    plan = command.add_argument_group("requests")
    plan.add_argument(
        "--requests", type=positive, default=120, metavar="N", help="number of requests (default: %(default)s)"
    )
    plan.add_argument(
        "--min-prompt-tokens",
        type=positive,
        metavar="N",
        default=150,
        help="shortest prompt (default: %(default)s)",
    )
    plan.add_argument(
        "--max-prompt-tokens",
        type=positive,
        metavar="N",
        default=3_000,
        help="longest prompt (default: %(default)s)",
    )
    plan.add_argument(
        "--output-tokens",
        type=positive,
        default=16,
        metavar="N",
        help="tokens to generate per request (default: %(default)s)",
    )
    plan.add_argument(
        "--concurrency", type=positive, default=4, metavar="N", help="maximum requests in flight (default: %(default)s)"
    )
    plan.add_argument(
        "--utilisation",
        type=amount,
        default=0.8,
        metavar="R",
        help="fraction of time the server is kept busy while requests are paced (default: %(default)g)",
    )
    plan.add_argument("--as-is", action="store_true", help="send the prompts unchanged, in file order")
    plan.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the prompts and arrivals (default: %(default)s)"
    )
    plan.add_argument("--no-warm-up", action="store_true", help="send no warm-up requests; record from the first one")
    privacy = command.add_argument_group("privacy")
    privacy.add_argument("--keep-raw-text", action="store_true", help="write prompt text instead of digests")
    privacy.add_argument(
        "--key-file", type=existing_file, metavar="FILE", help="key of the digests (default: a random key, not stored)"
    )
    privacy.add_argument("--tokenizer", metavar="FILE", help="a tokenizer.json for the blocks' token counts")
    command.add_argument("--quiet", action="store_true", help="no progress on stderr")


def execute(options: argparse.Namespace) -> ExitCode:
    wanted = _wanted(options)
    if options.mock:
        summary = collect_from_mock(wanted)
    else:
        with count_up("collect", options.requests, quiet=options.quiet) as advance:

            def served(_: Served) -> None:
                advance(1)

            summary = collect_from_server(wanted, served)
    write_out(_summary(summary, options.output))
    return ExitCode.OK


def _wanted(options: argparse.Namespace) -> CollectOptions:
    return CollectOptions(
        output=options.output,
        plan=PlanOptions(
            requests=options.requests,
            min_prompt_tokens=options.min_prompt_tokens,
            max_prompt_tokens=options.max_prompt_tokens,
            output_tokens=options.output_tokens,
            concurrency=options.concurrency,
            utilisation=options.utilisation,
            as_is=options.as_is,
            seed=options.seed,
        ),
        prompts=options.prompts,
        base_url=options.base_url,
        model=options.model,
        timeout_s=options.timeout_s,
        headers=dict(options.header),
        keep_text=options.keep_raw_text,
        key_file=options.key_file,
        tokenizer=options.tokenizer,
        warm_up=not options.no_warm_up,
    )


def _summary(summary: CollectSummary, output: Path) -> str:
    lines = [f"{summary.served} of {summary.requests} requests served; trace: {output}"]
    lines += [f"failed ({count}): {reason}" for reason, count in summary.failures.items()]
    if not summary.reports_cached_tokens:
        lines.append("the server does not report cached prompt tokens, so no latency model can be fitted to this trace")
    return "\n".join(lines) + "\n"
