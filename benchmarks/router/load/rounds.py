"""Rounds of the same load through every router and past all of them; called by ``load.py``.

Out: per arm requests/s at saturation, the latency it adds to a first token at a fixed rate, processor time per
request. Differences against direct are taken within a round, then their median over rounds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.console import progress, show_table
from benchmarks.estimates import median_and_range
from benchmarks.router.load.client import Job

DIRECT = "direct"
_CLIENT_SLACK_S = 90.0


@dataclass(frozen=True, slots=True)
class Arm:
    """``pid`` is None where no router is in between."""

    name: str
    urls: tuple[str, ...]
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """Saturation: ``streams`` in a closed loop without pauses. Latency: ``rate_per_s`` arrivals, paced tokens."""

    streams: int = 64
    tokens: int = 8
    rate_per_s: float = 100.0
    pause_ms: int = 20
    seconds: float = 6.0
    warmup_s: float = 1.0


def run_client(job: Job) -> dict[str, Any]:
    """One client process; it ends by itself, or is ended when it does not."""
    command = [sys.executable, "-m", "benchmarks.router.load.client", job.as_json()]
    allowed_s = job.seconds + job.warmup_s + job.ramp_s + _CLIENT_SLACK_S
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=allowed_s)
    record: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return record


def cpu_seconds(pid: int | None) -> float:
    """Of a process and its living children; 0 for none."""
    if pid is None:
        return 0.0
    leader = psutil.Process(pid)
    times = [process.cpu_times() for process in (leader, *leader.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def rss_bytes(pid: int) -> int:
    leader = psutil.Process(pid)
    return sum(int(process.memory_info().rss) for process in (leader, *leader.children(recursive=True)))


def run_rounds(arms: Sequence[Arm], rounds: int, plan: RoundPlan) -> list[dict[str, Any]]:
    """One record per arm and round. The order turns by one each round, so that no arm is always first."""
    records: list[dict[str, Any]] = []
    for number in range(rounds):
        for arm in (*arms[number % len(arms) :], *arms[: number % len(arms)]):
            record = {"round": number, "arm": arm.name, **_measure(arm, plan)}
            records.append(record)
            progress(f"round {number + 1}/{rounds} {arm.name}: {record['full']['requests_per_s']:.0f} requests/s")
    return records


def _measure(arm: Arm, plan: RoundPlan) -> dict[str, Any]:
    shared = {"urls": arm.urls, "seconds": plan.seconds, "tokens": plan.tokens, "warmup_s": plan.warmup_s}
    before = cpu_seconds(arm.pid)
    full = run_client(Job(**shared, pause_ms=0, streams=plan.streams))  # type: ignore[arg-type]
    used = cpu_seconds(arm.pid) - before
    paced = run_client(Job(**shared, pause_ms=plan.pause_ms, rate_per_s=plan.rate_per_s))  # type: ignore[arg-type]
    # The client counts only what was sent after the warm-up; the router worked through all of it.
    served = full["requests_per_s"] * (plan.seconds + plan.warmup_s)
    return {"full": full, "paced": paced, "cpu_us_per_request": 1e6 * used / served if served else None}


def added_ms(records: Sequence[Mapping[str, Any]], arm: str, quantile: str) -> list[float]:
    """First-token latency of the arm less that of direct, one value per round in which both were measured."""
    direct = {record["round"]: record["paced"]["first_ms"] for record in records if record["arm"] == DIRECT}
    values = []
    for record in records:
        here, there = record["paced"]["first_ms"], direct.get(record["round"])
        if record["arm"] == arm and here and there:
            values.append(here[quantile] - there[quantile])
    return values


def failures(records: Sequence[Mapping[str, Any]], arm: str) -> int:
    return sum(sum(r[load]["failed"].values()) for r in records if r["arm"] == arm for load in ("full", "paced"))


def show_rounds(records: Sequence[Mapping[str, Any]], arms: Sequence[Arm], plan: RoundPlan) -> None:
    rows = []
    for arm in arms:
        mine = [record for record in records if record["arm"] == arm.name]
        rates = [record["full"]["requests_per_s"] for record in mine]
        used = [record["cpu_us_per_request"] for record in mine if record["cpu_us_per_request"]]
        rows.append(
            (
                arm.name,
                median_and_range(rates, "{:.0f}"),
                median_and_range([r["full"]["first_ms"]["p99"] for r in mine if r["full"]["first_ms"]], "{:.1f}"),
                "floor" if arm.name == DIRECT else median_and_range(added_ms(records, arm.name, "p50"), "{:.2f}"),
                "floor" if arm.name == DIRECT else median_and_range(added_ms(records, arm.name, "p99"), "{:.2f}"),
                None if arm.pid is None else median_and_range(used, "{:.0f}"),
                failures(records, arm.name),
            )
        )
    rounds = len({record["round"] for record in records})
    title = (
        f"Side by side, median with least and most of {rounds} rounds. Saturation: {plan.streams} streams, no pauses. "
        f"Added: first token at {plan.rate_per_s:g} requests/s, less direct in the same round"
    )
    columns = (
        "router",
        "requests/s",
        "p99 ms at saturation",
        "added p50 ms",
        "added p99 ms",
        "CPU us/request",
        "failed",
    )
    show_table(title, columns, rows)
