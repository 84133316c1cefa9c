"""Thousands of streams for minutes through one router, its memory sampled once a second; called by ``load.py``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.console import progress, show_table
from benchmarks.router.load.client import Job
from benchmarks.router.load.rounds import cpu_seconds, rss_bytes

_SLACK_S = 120.0
_WARM_FRACTION = 1.0 / 3.0  # allocators and caches fill at first; the slope is of what follows
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def soak(pid: int, job: Job, upstreams: Sequence[str]) -> dict[str, Any]:
    """The client's record, the replicas' own counts of what they saw, and the router's memory over time."""
    before = counts(upstreams)
    samples: list[tuple[float, int]] = []
    started, cpu = time.monotonic(), cpu_seconds(pid)
    command = [sys.executable, "-m", "benchmarks.router.load.client", job.as_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        try:
            samples = _sample(client, pid, started, job.seconds + job.ramp_s + job.warmup_s + _SLACK_S)
            output = client.communicate(timeout=_SLACK_S)[0]
        finally:
            if client.poll() is None:
                client.kill()
    seconds = time.monotonic() - started
    after = counts(upstreams)
    record: dict[str, Any] = json.loads(output.splitlines()[-1])
    return {
        **record,
        "wall_s": seconds,
        "router_cpu_share": (cpu_seconds(pid) - cpu) / seconds,
        "replicas": {name: after[name] - before[name] for name in ("requests", "aborted")},
        "replicas_peak_streams": after["peak_streams"],
        "rss": memory(samples, job.ramp_s + job.warmup_s, job.ramp_s + job.warmup_s + job.seconds),
        "rss_samples": [[round(at, 1), size] for at, size in samples],
    }


def _sample(client: subprocess.Popen[str], pid: int, started: float, longest_s: float) -> list[tuple[float, int]]:
    samples: list[tuple[float, int]] = []
    reported_s = started
    while client.poll() is None and time.monotonic() - started < longest_s:
        samples.append((time.monotonic() - started, rss_bytes(pid)))
        if time.monotonic() - reported_s > 30.0:
            reported_s = time.monotonic()
            progress(f"soak: {samples[-1][0]:.0f} s, router {samples[-1][1] / 1e6:.1f} MB")
        try:
            client.wait(1.0)
        except subprocess.TimeoutExpired:
            continue
    return samples


def memory(samples: Sequence[tuple[float, int]], begin_s: float, end_s: float) -> dict[str, float] | None:
    """Slope by least squares over the steady part, while the load is on."""
    steady_s = begin_s + _WARM_FRACTION * (end_s - begin_s)
    kept = np.array([sample for sample in samples if steady_s <= sample[0] <= end_s], dtype=np.float64)
    if len(kept) < 5:
        return None
    slope = np.polyfit(kept[:, 0], kept[:, 1], 1)[0]
    return {
        "n": len(kept),
        "first_mb": kept[0, 1] / 1e6,
        "last_mb": kept[-1, 1] / 1e6,
        "high_mb": float(kept[:, 1].max()) / 1e6,
        "slope_mb_per_min": float(slope) * 60 / 1e6,
        "slope_percent_per_min": float(slope) * 6000 / float(kept[:, 1].mean()),
    }


def counts(urls: Sequence[str]) -> dict[str, int]:
    total: dict[str, int] = {}
    for url in urls:
        with _direct.open(f"{url}/counts", timeout=10) as answer:
            for name, value in json.load(answer).items():
                total[name] = total.get(name, 0) + value
    return total


def show_soak(name: str, record: Mapping[str, Any], job: Job) -> None:
    rss, first = record["rss"], record["first_ms"]
    rows = [
        ("streams open at once, client", record["peak_open"]),
        ("streams open at once, replicas (sum of peaks)", record["replicas_peak_streams"]),
        ("successful requests", record["ok"]),
        ("failed", json.dumps(record["failed"])),
        ("aborted at the replicas", record["replicas"]["aborted"]),
        ("first token p50 / p99 ms (the replica waits first)", first and f"{first['p50']:.1f} / {first['p99']:.1f}"),
        ("router processor share", f"{record['router_cpu_share']:.2f}"),
        (
            "router memory MB, first / last / maximum",
            rss and f"{rss['first_mb']:.1f} / {rss['last_mb']:.1f} / {rss['high_mb']:.1f}",
        ),
        (
            "slope MB/min (percent/min)",
            rss and f"{rss['slope_mb_per_min']:+.2f} ({rss['slope_percent_per_min']:+.2f} %)",
        ),
    ]
    title = f"Soak of {name}: {job.streams} streams, {job.tokens} tokens every {job.pause_ms} ms, {job.seconds:.0f} s"
    show_table(title, ("what", "measured"), rows)
