"""``make load-router``: streams, memory, added latency and decision time of our router, beside two others.

Run ``python -m benchmarks.router.load``; about 9 minutes on 2 cores, everything on loopback. Parts can be chosen with
``--only``. Exit code 1 when a law is broken (a failed request, too few streams).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripts.engines.server import EngineServer, EngineStartError, ServerSpec, launch, launch_all

from benchmarks.console import exit_code, progress, show_verdicts, write_results
from benchmarks.router import rivals
from benchmarks.router.load.client import Job
from benchmarks.router.load.decisions import IndexPlan, measure_decisions, show_decisions
from benchmarks.router.load.rounds import DIRECT, Arm, RoundPlan, added_ms, failures, run_rounds, show_rounds
from benchmarks.router.load.soak import show_soak, soak
from benchmarks.router.upstreams import replica_specs
from benchmarks.targets import Verdict

PARTS = ("rounds", "soak", "decisions")
OURS = ("semantic_locality", "round_robin")
FLAT_MB_PER_MIN = 2.0


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.router.load", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="default: all parts, in this order")
    parser.add_argument("--upstreams", type=int, default=2, help="replica processes (default: 2)")
    parser.add_argument("--policies", nargs="+", default=list(OURS), help="of our router in the rounds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--round-seconds", type=float, default=6.0)
    parser.add_argument("--rate", type=float, default=100.0, help="requests/s while latency is measured")
    parser.add_argument("--streams", type=int, default=2_000, help="of the soak")
    parser.add_argument("--soak-seconds", type=float, default=180.0)
    parser.add_argument("--soak-pause-ms", type=int, default=500, help="before each token")
    parser.add_argument("--soak-tokens", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=1_000_000, help="in the index while decisions are timed")
    parser.add_argument("--decisions", type=int, default=4_000)
    parser.add_argument("--decision-policy", default="precise_prefix")
    parser.add_argument("--name", default="router-load", help="of the result file")
    parser.add_argument("--enforce", action="store_true", help="targets that are not reached fail, too")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    chosen = parse(words)
    parts = chosen.only or PARTS
    record: dict[str, Any] = {"options": vars(chosen)}
    verdicts: list[Verdict] = []
    with ExitStack() as stack:
        upstreams = launch_all(replica_specs(chosen.upstreams))
        for server in upstreams:
            stack.callback(server.stop)
        urls = tuple(server.base_url for server in upstreams)
        for part in parts:
            verdicts += _RUN[part](chosen, urls, record)
            write_results(chosen.name, {**record, "verdicts": [verdict.as_record() for verdict in verdicts]})
    show_verdicts(verdicts)
    return exit_code(verdicts, bool(chosen.enforce))


def side_by_side(chosen: argparse.Namespace, urls: tuple[str, ...], record: dict[str, Any]) -> list[Verdict]:
    plan = RoundPlan(seconds=chosen.round_seconds, rate_per_s=chosen.rate)
    with ExitStack() as stack, TemporaryDirectory(prefix="load-router-") as folder:
        arms = [Arm(DIRECT, urls)]
        for name, spec in _specs(chosen.policies, urls, Path(folder)):
            server = _started(stack, name, spec)
            if server is not None:
                arms.append(Arm(name, (server.base_url,), server.pid))
        records = run_rounds(arms, chosen.rounds, plan)
    record["rounds"] = records
    show_rounds(records, arms, plan)
    ours = [arm.name for arm in arms if arm.name.startswith("semgate")]
    failed = sum(failures(records, name) for name in ours)
    added = {name: added_ms(records, name, "p99") for name in ours}
    verdicts = [Verdict("failed requests of ours in the rounds", "==", 0, failed if ours else None, is_law=True)]
    for name, values in added.items():
        rounds = sorted(values)
        verdicts.append(Verdict(f"added p99, {name}", "<=", 10.0, rounds[len(rounds) // 2] if rounds else None, "ms"))
    return verdicts


def hold_streams(chosen: argparse.Namespace, urls: tuple[str, ...], record: dict[str, Any]) -> list[Verdict]:
    with ExitStack() as stack, TemporaryDirectory(prefix="load-router-") as folder:
        spec = rivals.semgate(urls, chosen.policies[0], Path(folder))
        server = _started(stack, spec.name, spec)
        if server is None:
            return [Verdict("soak", "==", 0, None, is_law=True)]
        job = Job(
            urls=(server.base_url,),
            seconds=chosen.soak_seconds,
            tokens=chosen.soak_tokens,
            pause_ms=chosen.soak_pause_ms,
            streams=chosen.streams,
            ramp_s=10.0,
        )
        measured = soak(server.pid, job, urls)
    record["soak"] = measured
    show_soak(spec.name, measured, job)
    slope = measured["rss"] and measured["rss"]["slope_mb_per_min"]
    return [
        Verdict("soak: failed requests", "==", 0, sum(measured["failed"].values()), is_law=True),
        Verdict("soak: streams open at once", ">=", chosen.streams, measured["peak_open"], is_law=True),
        Verdict(
            "soak: streams at the replicas, sum of peaks",
            ">=",
            0.95 * chosen.streams,
            measured["replicas_peak_streams"],
        ),
        Verdict("soak: slope of the router's memory", "<=", FLAT_MB_PER_MIN, slope, "MB/min"),
    ]


def time_decisions(chosen: argparse.Namespace, urls: tuple[str, ...], record: dict[str, Any]) -> list[Verdict]:
    plan = IndexPlan(blocks=chosen.blocks, requests=chosen.decisions, policy=chosen.decision_policy)
    try:
        measured = measure_decisions(urls, plan)
    except (EngineStartError, TimeoutError) as error:
        progress(f"decisions were not measured: {error}")
        return [Verdict("decision p99", "<=", 1_000.0, None, "us")]
    record["decisions"] = measured
    show_decisions(measured)
    p99 = measured["decide_us"] and measured["decide_us"]["p99"]
    return [
        Verdict("blocks in the index", ">=", chosen.blocks, measured["indexed_blocks"]),
        Verdict("decision p99", "<=", 1_000.0, p99, "us"),
    ]


_RUN = {"rounds": side_by_side, "soak": hold_streams, "decisions": time_decisions}


def _specs(policies: Sequence[str], urls: tuple[str, ...], folder: Path) -> list[tuple[str, ServerSpec]]:
    ours = [(f"semgate {policy}", rivals.semgate(urls, policy, folder / policy)) for policy in policies]
    absent = rivals.missing()
    if absent is not None:
        progress(f"the other routers are left out: {absent}")
        return ours
    return [*ours, *((f"{name} cache_aware", make(urls)) for name, make in rivals.RIVALS.items())]


def _started(stack: ExitStack, name: str, spec: ServerSpec) -> EngineServer | None:
    """A router that does not come up is left out aloud, with what it said."""
    try:
        server = launch(spec)
    except EngineStartError as error:
        progress(f"{name} is left out: {error}")
        return None
    stack.callback(server.stop)
    return server


if __name__ == "__main__":
    raise SystemExit(main())
