"""Sixteen ``dynamo.mocker`` workers behind our router, behind Dynamo's KV router and in round robin; two traces.

Run ``python -m benchmarks.router.fleet``; about 9 minutes on 2 cores, everything on loopback. All arms have the same
hops: client, one semgate process, one Dynamo front-end, worker. In the Dynamo arm semgate passes everything on to the
one front-end that routes; in the others it chooses among sixteen front-ends that know one worker each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from scripts.engines.server import EngineStartError, ServerSpec, launch, launch_all

from benchmarks.console import exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.estimates import median_and_range
from benchmarks.router import rivals
from benchmarks.router.fleet import mockers
from benchmarks.router.fleet import turns as trace_turns
from benchmarks.router.fleet.mockers import BLOCK_TOKENS, MODEL, Fleet, MockerOptions, kv_fleet, pairs_fleet
from benchmarks.router.fleet.replay import replay
from benchmarks.router.fleet.turns import Turn, Window, best_hit_share, body_of
from benchmarks.router.load.rounds import cpu_seconds
from benchmarks.targets import Verdict

OURS, DYNAMO, TURNS, BARE = "semgate", "dynamo kv", "round robin", "dynamo kv, no hop"
WARM_UP_REQUESTS = 24


@dataclass(frozen=True, slots=True)
class Arm:
    """``spec`` is None if the client connects to Dynamo's front-end directly."""

    name: str
    spec: ServerSpec | None
    url: str = ""


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.router.fleet", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--traces", nargs="+", choices=sorted(_TRACES), default=sorted(_TRACES, reverse=True))
    parser.add_argument("--arms", nargs="+", choices=(OURS, DYNAMO, TURNS, BARE), default=[OURS, DYNAMO, TURNS])
    parser.add_argument("--policy", default="precise_prefix", help="of our router (default: precise_prefix)")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run")
    parser.add_argument("--mooncake-speed", type=float, default=6.0, help="trace seconds per second")
    parser.add_argument("--claude-speed", type=float, default=20.0)
    parser.add_argument("--sessions", type=int, default=24, help="Claude Code sessions")
    parser.add_argument("--max-prompt-tokens", "--most-prompt-tokens", type=int, default=64_000)
    parser.add_argument("--max-output-tokens", "--most-output-tokens", type=int, default=32)
    parser.add_argument("--speedup", type=float, default=0.6, help="of the mockers")
    parser.add_argument("--blocks", type=int, default=16_384, help="KV blocks of 64 tokens per worker")
    parser.add_argument("--session-header", action="store_true", help="send X-Session-ID")
    parser.add_argument("--router-flags", default="", help="more flags for our router, separated by spaces")
    parser.add_argument("--dynamo-flags", default="", help="more flags for Dynamo's routing front-end")
    parser.add_argument("--name", default="router-fleet", help="of the result file")
    parser.add_argument("--enforce", action="store_true", help="fail if a target is missed")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    chosen = parse(words)
    absent = mockers.missing() or trace_turns.missing()
    if absent is not None:
        progress(absent)
        return 3
    loads = {name: _TRACES[name](chosen) for name in chosen.traces}
    for name, turns in loads.items():
        tokens = sum(turn.prompt_tokens for turn in turns)
        progress(
            f"{name}: {len(turns)} requests, {tokens / 1e6:.1f} M prompt tokens, {best_hit_share(turns):.1%} repeat"
        )
    options = MockerOptions(workers=chosen.workers, speedup=chosen.speedup, blocks=chosen.blocks)
    with ExitStack() as stack, TemporaryDirectory(prefix="fleet-") as folder:
        pairs, kv = pairs_fleet(options), kv_fleet(options, tuple(chosen.dynamo_flags.split()))
        fleets = launch_all([pairs.spec, kv.spec])
        for server in fleets:
            stack.callback(server.stop)
            progress(f"{server.spec.name} up after {server.startup_s:.1f} s")
        runs = _run_all(chosen, loads, arms_of(chosen, pairs, kv, Path(folder)), [server.pid for server in fleets])
    verdicts = [verdict for name in loads for verdict in _verdicts(runs, name)]
    write_results(
        chosen.name, {"options": vars(chosen), "runs": runs, "verdicts": [verdict.as_record() for verdict in verdicts]}
    )
    for name in loads:
        _show(runs, name, chosen.arms)
    show_verdicts(verdicts)
    return exit_code(verdicts, bool(chosen.enforce))


def _mooncake(chosen: argparse.Namespace) -> list[Turn]:
    return trace_turns.mooncake(_window(chosen, chosen.mooncake_speed))


def _claude_code(chosen: argparse.Namespace) -> list[Turn]:
    return trace_turns.claude_code(_window(chosen, chosen.claude_speed), chosen.sessions)


def _window(chosen: argparse.Namespace, speed: float) -> Window:
    return Window(speed, chosen.seconds, chosen.max_prompt_tokens, chosen.max_output_tokens)


_TRACES: dict[str, Callable[[argparse.Namespace], list[Turn]]] = {"mooncake": _mooncake, "claude-code": _claude_code}


def arms_of(chosen: argparse.Namespace, pairs: Fleet, kv: Fleet, folder: Path) -> list[Arm]:
    announced = [f"{w.url};name=w{n};events={w.events};replay={w.replay}" for n, w in enumerate(pairs.workers)]
    named = [f"{worker.url};name=w{number}" for number, worker in enumerate(pairs.workers)]
    flags = tuple(chosen.router_flags.split())

    def hop(replicas: Sequence[str], policy: str, more: tuple[str, ...] = ()) -> ServerSpec:
        return rivals.semgate(replicas, policy, folder / policy, block_tokens=BLOCK_TOKENS, more=more)

    known = {
        OURS: Arm(OURS, hop(announced, chosen.policy, flags)),
        DYNAMO: Arm(DYNAMO, hop([f"{kv.urls[0]};name=kv"], "round_robin")),
        TURNS: Arm(TURNS, hop(named, "round_robin")),
        BARE: Arm(BARE, None, kv.urls[0]),
    }
    return [known[name] for name in chosen.arms]


def _run_all(
    chosen: argparse.Namespace, loads: dict[str, list[Turn]], arms: Sequence[Arm], fleets: Sequence[int]
) -> list[dict[str, Any]]:
    """Rounds outside, arms inside, in rotating order; every run has its own tokens, so none hits another's cache."""
    runs: list[dict[str, Any]] = []
    for number in range(chosen.rounds):
        for name, turns in loads.items():
            for arm in (*arms[number % len(arms) :], *arms[: number % len(arms)]):
                salt = len(runs) + 1
                try:
                    record = _run(arm, turns, salt, chosen.session_header, fleets)
                except EngineStartError as error:
                    progress(f"{arm.name} is left out: {error}")
                    continue
                runs.append({"trace": name, "round": number, "arm": arm.name, **record})
                progress(_line(runs[-1]))
    return runs


def _run(arm: Arm, turns: list[Turn], salt: int, session_header: bool, fleets: Sequence[int]) -> dict[str, Any]:
    """A new router process for every run, so that it knows nothing of another arm's load."""
    bodies = [body_of(turn, MODEL, salt) for turn in turns]
    with ExitStack() as stack:
        router = None if arm.spec is None else stack.enter_context(launch(arm.spec))
        url = arm.url if router is None else router.base_url
        small = [Turn(0.02 * n, f"warm{n}", turns[0].block_ids[:1] + n, 64, 64, 2) for n in range(WARM_UP_REQUESTS)]
        asyncio.run(replay(url, small, [body_of(turn, MODEL, salt + 10_000) for turn in small], session_header=False))
        watched = {"router": [router.pid] if router else [], "fleets": [*fleets], "client": [os.getpid()]}
        before = {name: sum(map(own_cpu_seconds, pids)) for name, pids in watched.items()}
        replayed = asyncio.run(replay(url, turns, bodies, session_header=session_header))
        used = {name: sum(map(own_cpu_seconds, pids)) - before[name] for name, pids in watched.items()}
    return {**replayed.as_record(), "cpu_ms_per_request": {name: 1000.0 * s / len(turns) for name, s in used.items()}}


def own_cpu_seconds(pid: int) -> float:
    """With all its children, but for ourselves: the fleets are children of this process."""
    if pid == os.getpid():
        return time.process_time()
    return cpu_seconds(pid)


def _line(run: dict[str, Any]) -> str:
    ttft, hits = run["ttft_mean_ms"], run["hit_share"]
    shown = "no answers" if ttft is None else f"mean TTFT {ttft:.0f} ms, hits {hits or 0.0:.1%}, n {run['n']}"
    used = ", ".join(f"{name} {ms:.0f}" for name, ms in run["cpu_ms_per_request"].items())
    lag = f"late p99 {run['late_p99_ms'] or 0.0:.0f} ms, processors {run['cpu_share']:.0%} busy (ms/request: {used})"
    return f"round {run['round'] + 1} {run['trace']} {run['arm']}: {shown}, failed {sum(run['failed'].values())}, {lag}"


def _show(runs: list[dict[str, Any]], trace: str, arms: Sequence[str]) -> None:
    rows = []
    for arm in arms:
        mine = [run for run in runs if run["arm"] == arm and run["trace"] == trace and run["n"]]
        if not mine:
            rows.append((arm, *[None] * 7))
            continue
        hit, asked = sum(run["hit_tokens"] for run in mine), sum(run["prompt_tokens"] for run in mine)
        times = [median_and_range([run[f"ttft_{which}_ms"] for run in mine]) for which in ("mean", "p50", "p90", "p99")]
        share = f"{hit / asked:.1%} ({hit / 1e6:.2f} of {asked / 1e6:.2f} M)" if asked else None
        failed = sum(sum(run["failed"].values()) for run in mine)
        busy = f"{median(run['cpu_share'] for run in mine):.0%}"
        rows.append((arm, *times, share, f"{sum(run['n'] for run in mine)} / {failed}", busy))
    rounds = len({run["round"] for run in runs})
    title = f"{trace}: TTFT in ms, median with minimum and maximum of {rounds} rounds; hits as the workers report them"
    show_table(title, ("arm", "mean", "p50", "p90", "p99", "hit tokens of prompt tokens", "ok / failed", "CPU"), rows)


def _verdicts(runs: list[dict[str, Any]], trace: str) -> list[Verdict]:
    """Ours against Dynamo's router: mean TTFT as a ratio within each round, then the median."""

    def ratio(other: str) -> float | None:
        mean = {(run["arm"], run["round"]): run["ttft_mean_ms"] for run in runs if run["trace"] == trace and run["n"]}
        pairs = [(mean[key], mean.get((other, key[1]))) for key in mean if key[0] == OURS]
        ratios = [ours / theirs for ours, theirs in pairs if theirs]
        return median(ratios) if ratios else None

    failed = [sum(run["failed"].values()) for run in runs if run["trace"] == trace and run["arm"] == OURS]
    return [
        Verdict(f"{trace}: failed requests of ours", "==", 0, sum(failed) if failed else None, is_law=True),
        Verdict(f"{trace}: mean TTFT of ours / Dynamo's KV router", "<=", 1.0, ratio(DYNAMO)),
        Verdict(f"{trace}: mean TTFT of ours / round robin", "<=", 1.0, ratio(TURNS)),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
