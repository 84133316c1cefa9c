"""Hundreds of streams at once through a real proxy process: none fails, none waits for another, memory stays flat."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.fakes.scripted_upstream import EVENTS_HEAD, Call, connected, scripted
from tests.unit.semgate.proxy.running_proxy import CHAT, DONE, ROLE, TOKEN, USAGE, chat_body, play, proxy_process
from tests.waiting import PATIENCE_S

TOKENS = 16
ROUNDS = 4
BETWEEN_S = 0.05


async def paced(call: Call) -> None:
    call.write(EVENTS_HEAD)
    call.chunk(ROLE)
    for _ in range(TOKENS):
        await asyncio.sleep(BETWEEN_S)
        call.chunk(TOKEN)
    call.chunk(USAGE + DONE)
    call.end()


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@pytest.mark.load
@pytest.mark.slow
@pytest.mark.parametrize("streams", [256, 1000])
def test_many_streams_at_once(tmp_path: Path, streams: int) -> None:
    whole = ROLE + TOKEN * TOKENS + USAGE + DONE

    async def one(port: int) -> bool:
        async with connected(port) as client:
            client.send("POST", CHAT, chat_body("word " * 200))
            answer = await client.answer()
            return answer.complete and answer.body == whole

    async def act() -> None:
        async with scripted(paced) as upstream, proxy_process(upstream.origin, tmp_path / "work") as (port, pid):
            resident = []
            for number in range(ROUNDS):
                began_s, began_cpu_s = time.perf_counter(), cpu_s(pid)
                answers = await asyncio.gather(*(one(port) for _ in range(streams)))
                took_s, used_s = time.perf_counter() - began_s, cpu_s(pid) - began_cpu_s
                resident.append(resident_mb(pid))
                upstream.calls.clear()
                print(
                    f"{streams} streams, round {number}: {streams / took_s:.0f} requests/s, "
                    f"{1e6 * used_s / streams:.0f} us of CPU per request of {TOKENS + 2} chunks, {resident[-1]:.0f} MB"
                )
                assert answers == [True] * streams
            assert resident[-1] - resident[1] < 16.0

    play(act, 4 * PATIENCE_S)
    lines = [line for path in (tmp_path / "work" / "traces").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) == streams * ROUNDS
