"""A few hundred streams through the router as a process: none lost, none cut, none altered, memory bounded.

The client checks every byte of every stream; the replicas count for themselves what was open and what was aborted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from benchmarks.router.load.client import Job
from benchmarks.router.load.rounds import cpu_seconds, rss_bytes, run_client
from benchmarks.router.load.soak import counts
from benchmarks.router.rivals import semgate
from benchmarks.router.upstreams import replica_specs
from scripts.engines.server import EngineServer, launch, launch_all

STREAMS, TOKENS, PAUSE_MS = 300, 10, 300
ATTEMPTS = 5
pytestmark = pytest.mark.load


@pytest.fixture
def replicas() -> Iterator[tuple[EngineServer, ...]]:
    with ExitStack() as stack:
        servers = launch_all(replica_specs(2))
        for server in servers:
            stack.callback(server.stop)
        yield servers


def urls_of(servers: tuple[EngineServer, ...]) -> tuple[str, ...]:
    return tuple(server.base_url for server in servers)


def held_at_once(job: Job) -> Counter[str]:
    """The same load again where a machine that stalled let the first streams end before the last began. None fails."""
    total: Counter[str] = Counter()
    for _ in range(ATTEMPTS):
        record = run_client(job)
        assert record["failed"] == {}
        total["ok"] += record["ok"]
        if record["peak_open"] == STREAMS:
            return total
    pytest.fail(f"{STREAMS} streams were not open at once in {ATTEMPTS} attempts")


def test_the_client_and_the_replicas_alone_hold_the_streams(replicas: tuple[EngineServer, ...]) -> None:
    """The floor: a failure here is not caused by a router."""
    held_at_once(Job(urls_of(replicas), 3.0, TOKENS, PAUSE_MS, streams=STREAMS))
    assert counts(urls_of(replicas))["peak_streams"] == STREAMS


@pytest.mark.parametrize("policy", ["round_robin", "semantic_locality"])
def test_the_router_holds_the_streams(
    policy: str, replicas: tuple[EngineServer, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = urls_of(replicas)
    with launch(semgate(urls, policy, tmp_path)) as router:
        warm = run_client(Job((router.base_url,), 1.0, TOKENS, 10, streams=8))
        before, cpu = rss_bytes(router.pid), cpu_seconds(router.pid)
        record = held_at_once(Job((router.base_url,), 9.0, TOKENS, PAUSE_MS, streams=STREAMS, ramp_s=2.0))
        grown, used_s = rss_bytes(router.pid) - before, cpu_seconds(router.pid) - cpu
    seen = counts(urls)
    with capsys.disabled():
        shown = f"{used_s / record['ok'] * 1e6:.0f} us of processor per request of {TOKENS} tokens"
        print(f"\n{policy}: {record['ok']} streams, {shown}, +{grown / 1e6:.1f} MB, load {os.getloadavg()[0]:.1f}")
    assert warm["failed"] == {}
    assert record["ok"] >= STREAMS
    assert seen["aborted"] == 0
    assert seen["requests"] == warm["ok"] + record["ok"]  # nothing was sent twice
    assert grown < 64 * 1024 * STREAMS + 30e6  # 64 kB for a stream, and what a process takes on its way
