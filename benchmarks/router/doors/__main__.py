"""``make bench-doors``: the router, Envoy alone, and Envoy with the picker through each door, side by side in one run.

Short requests in a closed loop, agentic ones (400 KB prompt, 1,000 tokens), and many open streams. Processor time is of
Envoy and of our process together. Exit code 1 when a request failed. About 10 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripts.engines.ports import free_port
from scripts.engines.server import PORT, EngineServer, ServerSpec, launch, launch_all

from benchmarks.console import exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.router import rivals
from benchmarks.router.doors.envoy import ALONE
from benchmarks.router.load.client import Job
from benchmarks.router.load.rounds import cpu_seconds, rss_bytes, run_client
from benchmarks.router.upstreams import replica_specs
from benchmarks.targets import Verdict

ROUTER = "router"
ARMS = (ROUTER, ALONE, "cheap", "full duplex")
POLICY = "semantic_locality"


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    job: Job


def phases(chosen: argparse.Namespace, url: str) -> list[Phase]:
    urls = (url,)
    short = Job(urls, chosen.seconds, tokens=8, pause_ms=0, streams=64)
    agentic = Job(urls, chosen.seconds, tokens=1_000, pause_ms=20, streams=chosen.agents, prompt_bytes=400_000)
    held = Job(urls, chosen.seconds, tokens=20, pause_ms=500, streams=chosen.streams, ramp_s=10.0)
    made = [Phase("short", short), Phase("agentic", agentic), Phase(f"{chosen.streams} streams", held)]
    return [each for each in made if chosen.only is None or each.name.split()[-1] in chosen.only]


def started(stack: ExitStack, name: str, engines: Sequence[EngineServer], folder: Path) -> tuple[str, list[int]]:
    """Where clients connect, and the processes to count: Envoy's first."""
    urls = [server.base_url for server in engines]
    if name == ROUTER:
        router = launch(rivals.semgate(urls, POLICY, folder))
        stack.callback(router.stop)
        return router.base_url, [router.pid]
    pids, door_port = [], free_port()
    if name != ALONE:
        command = (
            *(sys.executable, "-m", "semgate", "picker", "--status-port", PORT, "--port", str(door_port)),
            *("--replicas", ",".join(urls), "--routing-policy", POLICY),
            *("--routing-output-dir", str(folder), "--log-level", "warning"),
        )
        picker = launch(ServerSpec(f"picker, {name}", command, health_path="/readyz", startup_timeout_s=120.0))
        stack.callback(picker.stop)
        pids.append(picker.pid)
    ports = ",".join(url.rpartition(":")[2] for url in urls)
    front = (
        *(sys.executable, "-m", "benchmarks.router.doors.envoy", "--port", PORT, "--door", name),
        *("--engines", ports, "--picker", str(door_port)),
    )
    envoy = launch(ServerSpec(f"envoy, {name}", front, health_path="/v1/models", startup_timeout_s=60.0))
    stack.callback(envoy.stop)
    return envoy.base_url, [envoy.pid, *pids]


def measure(chosen: argparse.Namespace, name: str, engines: Sequence[EngineServer]) -> list[dict[str, Any]]:
    found = []
    with ExitStack() as stack, TemporaryDirectory(prefix="doors-") as folder:
        url, pids = started(stack, name, engines, Path(folder))
        for phase in phases(chosen, url):
            before = [cpu_seconds(pid) for pid in pids]
            client = run_client(phase.job)
            used = [cpu_seconds(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
            served = client["ok"]
            row = {
                "arm": name,
                "phase": phase.name,
                "requests": served,
                "failed": sum(client["failed"].values()),
                "faults": client["failed"],
                "peak_open": client["peak_open"],
                "cpu_ms_per_request": 1e3 * sum(used) / served if served else None,
                "ours_ms_per_request": 1e3 * (sum(used) - (used[0] if name != ROUTER else 0.0)) / served
                if served
                else None,
                "rss_mb": sum(rss_bytes(pid) for pid in pids) / 1e6,
            }
            progress(f"{name}, {phase.name}: {row}")
            found.append(row)
    return found


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.router.doors", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--only", nargs="+", choices=("short", "agentic", "streams"), help="default: all phases")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    parser.add_argument("--agents", type=int, default=8, help="agentic requests at once")
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--name", default="router-doors", help="of the result file")
    chosen = parser.parse_args(words)
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        engines = launch_all(replica_specs(2))
        for server in engines:
            stack.callback(server.stop)
        for number in range(chosen.rounds):
            for name in chosen.arms:
                rows += [{"round": number, **row} for row in measure(chosen, name, engines)]
                write_results(chosen.name, {"options": vars(chosen), "rows": rows})
    shown = ("arm", "phase", "requests", "failed", "peak_open", "cpu_ms_per_request", "ours_ms_per_request", "rss_mb")
    show_table("Doors", shown, [[_text(row[name]) for name in shown] for row in rows])
    failed = Verdict("failed requests", "==", 0, sum(row["failed"] for row in rows), is_law=True)
    show_verdicts([failed])
    return exit_code([failed], enforce=True)


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    raise SystemExit(main())
