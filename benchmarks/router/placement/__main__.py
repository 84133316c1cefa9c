"""A million requests through the placement logic alone, over 64 simulated replicas: ``-m benchmarks.router.placement``.

The real ``Placer`` decides every request; the fleet behind it is a model (``fleet.py``). Beside the policies: a
clairvoyant greedy placement, and a bound that nothing can beat (every block ever computed is everywhere, no queues).
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from typing import Any, Final

from scripts.data.folder import TRACES

from benchmarks.console import exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.router.placement.fleet import REPLICAS
from benchmarks.router.placement.load import Load, mooncake, synthetic
from benchmarks.router.placement.replay import PRICE, Result, bound, replay, sighted
from benchmarks.router.placement.time import decision_times
from benchmarks.targets import Verdict

MOONCAKE: Final = TRACES / "mooncake_conversation_trace.jsonl.gz"
POLICIES: Final = ("round_robin", "least_loaded", "prefix_hash", "precise_prefix")


def judge(results: Sequence[Result]) -> list[Verdict]:
    """On a load with locality twice as good as round robin, on one without never 3 % worse than least loaded."""
    by_name = {(each.load, each.policy): each.ttft_mean_ms for each in results}
    verdicts = []
    for load in dict.fromkeys(each.load for each in results):
        best = by_name[load, "precise_prefix"]
        if "no locality" in load:
            for policy in ("prefix_hash", "precise_prefix"):
                ratio = by_name[load, policy] / by_name[load, "least_loaded"]
                verdicts.append(Verdict(f"{load}: mean TTFT {policy} / least_loaded", "<=", 1.03, ratio, is_law=True))
        else:
            gain = by_name[load, "round_robin"] / best
            verdicts.append(Verdict(f"{load}: mean TTFT round_robin / precise_prefix", ">=", 2.0, gain))
    return verdicts


def show(load: Load, results: Sequence[Result], capacity: int) -> None:
    columns = (
        "policy",
        "hit rate",
        "TTFT mean ms",
        "vs round robin",
        "p50",
        "p90",
        "busiest/mean",
        "requests/cpu s",
        "decide p50 cpu us",
        "p99",
        "p99 wall",
        "grown MB",
    )
    baseline = next((each for each in results if each.policy == "round_robin"), None)
    title = (
        f"{load.name}: {load.requests:,} requests, {REPLICAS} replicas of {capacity:,} blocks of {load.block_tokens} "
        f"tokens, {load.prompt_tokens.mean():,.0f} tokens a prompt (times modelled, decisions real)"
    )
    show_table(title, columns, [each.row(baseline) for each in results])


def run(load: Load, capacity: int, jobs: int) -> list[Result]:
    """Each policy in a process of its own, so that what it keeps can be weighed."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting = [pool.submit(replay, load, policy, capacity) for policy in POLICIES]
        for each in as_completed(waiting):
            done = each.result()
            progress(f"{done.policy}: hit rate {done.hit_rate:.4f}, mean TTFT {done.ttft_mean_ms:,.0f} ms")
        results = [each.result() for each in waiting]
    return [
        *results,
        sighted(load, capacity, knows_future=False),
        sighted(load, capacity, knows_future=True),
        bound(load),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.router.placement", description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000, help="of the synthetic load with sessions")
    parser.add_argument("--capacity", type=int, default=1_536, help="blocks of one replica's cache")
    parser.add_argument("--offered", type=float, default=1.2, help="cold prefill work over what the fleet computes")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--enforce", action="store_true", help="a target that is not reached fails")
    given = parser.parse_args(argv)
    scale: dict[str, Any] = {"ms_per_token": PRICE.ms_per_token, "replicas": REPLICAS}
    flat = min(given.requests // 5, 100_000)
    loads = [
        (synthetic(given.requests, local=True, offered=given.offered, **scale), given.capacity),
        (synthetic(flat, local=False, offered=0.8, **scale), given.capacity),
    ]
    if MOONCAKE.is_file():
        loads.append((mooncake(MOONCAKE, 12_031, offered=1.0, **scale), 256))
    results = []
    for load, capacity in loads:
        progress(f"{load.name}: {load.requests:,} requests")
        here = run(load, capacity, given.jobs)
        show(load, here, capacity)
        results += here
    cpu, wall, blocks = decision_times()
    progress(f"a decision at {blocks:,} blocks: p50 {cpu.p50:.0f} us, p99 {cpu.p99:.0f} us cpu, {wall.p99:.0f} us wall")
    verdicts = [*judge(results), Verdict(f"decision p99 at {blocks:,} blocks", "<=", 1_000.0, cpu.p99, "us cpu")]
    show_verdicts(verdicts)
    record = {"results": [asdict(each) for each in results], "decision_cpu_us": asdict(cpu), "wall_us": asdict(wall)}
    write_results("router_placement", record)
    return exit_code(verdicts, given.enforce)


if __name__ == "__main__":
    raise SystemExit(main())
