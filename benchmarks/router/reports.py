"""Processor time for reading the load of 256 replicas every 200 ms: ``python -m benchmarks.router.reports``.

The replicas are ports of one process of fake engines on loopback, which is not measured. Arms: the small page that
vLLM and SGLang give when asked by name, the same with numbers that change every time, and a whole page of 60 KB for
engines that cannot filter. About 40 seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from subprocess import PIPE, Popen
from typing import Final

import uvloop

from benchmarks.console import exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.targets import Verdict
from semgate.fleet import Endpoint, Fleet
from semgate.fleet.load_reports import LoadReports

ARMS: Final = ("small page", "small page, changing", "whole page")
_FILLER: Final = b'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="a/model"} 0.0\n'
_WHOLE_BYTES: Final = 60_000
_NAMES: Final = (
    b"vllm:num_requests_running",
    b"vllm:num_requests_waiting",
    b"vllm:kv_cache_usage_perc",
    b"vllm:request_prefill_kv_computed_tokens_sum",
    b"vllm:request_prefill_kv_computed_tokens_count",
)


def page_of(arm: str, number: int) -> bytes:
    lines = b"".join(b'%s{engine="0",model_name="a/model"} %d.0\n' % (name, 3 + number) for name in _NAMES)
    return _FILLER * (_WHOLE_BYTES // len(_FILLER)) + lines if arm == "whole page" else lines


class _FakeEngine(asyncio.Protocol):
    def __init__(self, arm: str) -> None:
        self._arm = arm
        self._number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._number += self._arm == "small page, changing"
        body = page_of(self._arm, self._number % 90)
        head = b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: text/plain\r\n\r\n" % len(
            body
        )
        self._transport.write(head + body)  # type: ignore[attr-defined]


async def serve(arm: str, count: int) -> None:
    """Prints its ports, then answers until its input ends."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(lambda: _FakeEngine(arm), "127.0.0.1", 0) for _ in range(count)]
    sys.stdout.write(" ".join(str(each.sockets[0].getsockname()[1]) for each in servers) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


async def measure(ports: Sequence[int], seconds: float, interval_s: float) -> dict[str, float]:
    fleet = Fleet(max_replicas=len(ports))
    fleet.apply([Endpoint(f"r{port}", f"http://127.0.0.1:{port}") for port in ports])
    reports = LoadReports(lambda: fleet, interval_s)
    task = asyncio.get_running_loop().create_task(reports.run())
    try:
        while reports.read < len(ports):  # every connection is open
            await asyncio.sleep(0.05)
        read, used_s, began_s = reports.read, time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        read, used_s, wall_s = reports.read - read, time.process_time() - used_s, time.perf_counter() - began_s
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        reports.close()
    return {
        "reads": read,
        "reads_per_s": read / wall_s,
        "us_per_read": 1e6 * used_s / max(read, 1),
        "core": used_s / wall_s,
    }


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.router.reports", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--replicas", type=int, default=256)
    parser.add_argument("--interval", type=float, default=0.2, help="seconds")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each arm")
    parser.add_argument("--enforce", action="store_true", help="fail if a target is missed")
    parser.add_argument("--serve", choices=ARMS, help=argparse.SUPPRESS)
    chosen = parser.parse_args(words)
    if chosen.serve:
        uvloop.run(serve(chosen.serve, chosen.replicas))
        return 0
    found = {}
    for arm in ARMS:
        command = (
            sys.executable,
            "-m",
            "benchmarks.router.reports",
            "--serve",
            arm,
            "--replicas",
            str(chosen.replicas),
        )
        with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as engines:
            assert engines.stdout is not None
            assert engines.stdin is not None
            ports = [int(word) for word in engines.stdout.readline().split()]
            found[arm] = uvloop.run(measure(ports, chosen.seconds, chosen.interval))
            engines.stdin.close()
        progress(f"{arm}: {found[arm]['core']:.2%} of a core, {found[arm]['reads_per_s']:.0f} reads/s")
    title = f"{chosen.replicas} replicas, one read every {1000 * chosen.interval:.0f} ms, {chosen.seconds:.0f} s each"
    rows = [
        (arm, f"{each['core']:.2%}", each["us_per_read"], each["reads_per_s"], each["reads"])
        for arm, each in found.items()
    ]
    show_table(title, ("page", "of a core", "us cpu per read", "reads/s", "n"), rows)
    rate = chosen.replicas / chosen.interval  # a busy machine may not reach it
    verdicts = [
        Verdict(f"{arm}: of a core at {rate:.0f} reads/s", "<=", 0.05, found[arm]["us_per_read"] * rate / 1e6)
        for arm in ARMS[:2]
    ]
    show_verdicts(verdicts)
    write_results("router_reports", {"options": vars(chosen), "arms": found})
    return exit_code(verdicts, bool(chosen.enforce))


if __name__ == "__main__":
    raise SystemExit(main())
