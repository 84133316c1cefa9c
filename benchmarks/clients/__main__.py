"""``kvmend bench run-load`` beside ``vllm bench serve`` and GuideLLM: the same load, sent by each in turn.

``real`` loads a stock vLLM server and asks whether all read the same figures; ``fast`` loads a stand-in that answers
at once and asks how many requests a client manages and how late its time stamps are.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from scripts.engines.specs import vllm_missing

from benchmarks.clients import guidellm, run_load, vllm_bench
from benchmarks.clients.cells import cells_of
from benchmarks.clients.client import Client
from benchmarks.clients.load import Load, Target
from benchmarks.clients.rounds import Reading, measure_rounds
from benchmarks.clients.servers import Pace, fake_server, stock_vllm
from benchmarks.clients.table import show_figures, show_server_side, show_speed
from benchmarks.clients.verdicts import fast_verdicts, real_verdicts
from benchmarks.console import exit_code, progress, show_verdicts, write_results
from benchmarks.corpus import TOKENIZER
from benchmarks.targets import Verdict

CLIENTS = {"run-load": run_load.NAME, "vllm": vllm_bench.NAME, "guidellm": guidellm.NAME}
_MIN_FAST_REQUESTS = 1000
_FAST_REQUESTS_EACH = 3  # per stream: opening the connections is a third of it


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that clients and server are ended on the way out
    arguments = _parse()
    if not TOKENIZER.is_file():
        progress("nothing measured: no tokenizer; run: make models")
        return 3
    if arguments.server == "real" and (missing := vllm_missing()) is not None:
        progress(f"nothing measured: {missing}")
        return 3
    if arguments.install:
        guidellm.install()
    clients = _present(arguments)
    _allow_files()
    verdicts = (_real if arguments.server == "real" else _fast)(arguments, clients)
    show_verdicts(verdicts)
    return exit_code(verdicts, arguments.enforce)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description=__doc__)
    parser.add_argument("server", choices=("real", "fast"), help="a stock vLLM server, or a stand-in that is fast")
    parser.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS), help="default: all")
    parser.add_argument("--concurrency", nargs="+", type=int, help="default: 1 4 (real), 64 1000 (fast)")
    parser.add_argument("--requests", type=int, help="per run (default: 60; fast: 3 per stream, 1000 or more)")
    parser.add_argument("--rounds", type=int, help="runs of every client (default: 5; fast: 3)")
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=16)
    parser.add_argument("--ttft-ms", type=float, default=100.0, help="of the stand-in (default: 100)")
    parser.add_argument("--itl-ms", type=float, default=10.0, help="of the stand-in (default: 10)")
    parser.add_argument("--timeout-seconds", type=float, default=600.0, help="most for one run of a client")
    parser.add_argument("--guidellm", type=Path, default=guidellm.PROGRAM, help="the program, if it is elsewhere")
    parser.add_argument("--install", action="store_true", help="make GuideLLM's environment in .engines/rivals first")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--enforce", action="store_true", help="missed targets fail the run too")
    parser.add_argument("--name", help="of the file in results/ (default: clients-real, clients-fast)")
    arguments = parser.parse_args()
    real = arguments.server == "real"
    arguments.concurrency = arguments.concurrency or ([1, 4] if real else [64, 1000])
    arguments.rounds = arguments.rounds or (5 if real else 3)
    arguments.name = arguments.name or f"clients-{arguments.server}"
    return arguments


def _present(arguments: argparse.Namespace) -> list[Client]:
    """A client that is not installed is left out aloud, and its verdicts with it."""
    known = {"run-load": run_load.CLIENT, "vllm": vllm_bench.CLIENT, "guidellm": guidellm.client(arguments.guidellm)}
    present = []
    for name in arguments.clients:
        if (missing := known[name].missing()) is None:
            present.append(known[name])
        else:
            progress(f"without {name}: {missing}")
    return present


def _real(arguments: argparse.Namespace, clients: Sequence[Client]) -> list[Verdict]:
    loads = [_load(arguments, n, arguments.requests or 60, warm_up=n) for n in arguments.concurrency]
    with stock_vllm() as target:
        warmed = [_load(arguments, 1, 4, warm_up=0)]
        measure_rounds([run_load.CLIENT], warmed, 1, lambda: nullcontext(target), arguments.timeout_seconds, _forget)
        readings = _measure(arguments, clients, loads, lambda: nullcontext(target))
    cells = cells_of(readings)
    show_figures(cells)
    show_server_side(cells)
    return _written(arguments, readings, real_verdicts(cells))


def _fast(arguments: argparse.Namespace, clients: Sequence[Client]) -> list[Verdict]:
    """Without warm-up: what a client needs to open its streams is its own."""
    pace = Pace(arguments.ttft_ms, arguments.itl_ms)
    loads = [
        _load(arguments, n, arguments.requests or max(_MIN_FAST_REQUESTS, _FAST_REQUESTS_EACH * n), warm_up=0)
        for n in arguments.concurrency
    ]
    readings = _measure(arguments, clients, loads, lambda: fake_server(pace, arguments.output_tokens))
    cells = cells_of(readings)
    show_figures(cells)
    show_speed(cells, pace, arguments.output_tokens)
    return _written(arguments, readings, fast_verdicts(cells, pace))


def _load(arguments: argparse.Namespace, concurrency: int, requests: int, *, warm_up: int) -> Load:
    return Load(concurrency, requests, warm_up, arguments.prompt_tokens, arguments.output_tokens, arguments.seed)


def _measure(
    arguments: argparse.Namespace,
    clients: Sequence[Client],
    loads: Sequence[Load],
    serving: Callable[[], AbstractContextManager[Target]],
) -> list[Reading]:
    def keep(readings: list[Reading]) -> None:
        write_results(arguments.name, {"unfinished": True, "readings": [reading.as_record() for reading in readings]})

    return measure_rounds(clients, loads, arguments.rounds, serving, arguments.timeout_seconds, keep)


def _forget(_: list[Reading]) -> None:
    """The first requests of a server are not measured."""


def _written(arguments: argparse.Namespace, readings: Sequence[Reading], verdicts: list[Verdict]) -> list[Verdict]:
    record = {
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
        "readings": [reading.as_record() for reading in readings],
        "verdicts": [verdict.as_record() for verdict in verdicts],
    }
    path = write_results(arguments.name, record)
    progress(f"written: {path.name} in {path.parent.name}/")
    return verdicts


def _allow_files() -> None:
    """Clients and stand-in inherit it: a thousand streams are more files than some shells allow."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    raise SystemExit(main())
