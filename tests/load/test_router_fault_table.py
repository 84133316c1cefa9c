"""A router process before three replica processes that are killed, stopped, or break their streams, under load.

Counted, not timed: no stream ends without its last event or an error event, none stays open, nothing fails that another
replica could serve, and at the end files, memory and requests in flight are what they were.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from scripts.engines.ports import free_port
from tests.attacks.processes import NOW, listens, memory_mb, running
from tests.fakes import faulty_stream
from tests.fakes.faulty_stream import Mode
from tests.fakes.scripted_upstream import ask
from tests.waiting import PATIENCE_S, until

STREAMS, REQUESTS = 48, 144
TOKENS, PAUSE_S = 12, 0.02
LONG_LINES = 24
SHORT_REQUESTS, SHORT_AT_ONCE = 10_000, 48
SILENT_SECONDS = "8"  # far more than a machine that stalls takes for a token
DEAD_ANSWERS = 60  # errors that clients see before dead replicas are started again
MORE_FILES, MORE_MB = 8, 64
KEPT_BYTES = 4096
pytestmark = pytest.mark.load

Results = Counter[str]


@dataclass
class Table:
    """``processes``: of the replicas, by their number."""

    port: int
    status_port: int
    pid: int
    replica_ports: tuple[int, ...]
    processes: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)

    async def start(self, number: int, mode: Mode = "ok") -> None:
        words = ("-m", faulty_stream.__name__, str(self.replica_ports[number]), mode)
        env = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}
        self.processes[number] = await asyncio.create_subprocess_exec(sys.executable, *words, env=env)
        while not await listens(self.replica_ports[number]):
            await asyncio.sleep(0.05)

    async def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        process.kill()
        await process.wait()

    async def change(self, number: int, mode: Mode) -> None:
        await self.kill(number)
        await self.start(number, mode)
        await self.recover()

    async def recover(self) -> None:
        """Until every replica is ready; a breaker closes with a request's answer only."""

        async def is_ready() -> bool:
            await self.load(lambda results: results.total() >= 6, 6, tokens=1)
            return set((await self.metric("semgate_replica_ready")).values()) == {1.0}

        for _ in range(int(PATIENCE_S)):
            if await is_ready():
                return
            await asyncio.sleep(1.0)
        pytest.fail("a replica did not return")

    async def metric(self, name: str) -> dict[str, float]:
        page = (await ask(self.status_port, "GET", "/metrics")).body.decode()
        return {labels: float(value) for labels, value in re.findall(rf"^{name}(\S*) (\S+)$", page, re.MULTILINE)}

    async def in_flight(self) -> float:
        return sum((await self.metric("semgate_replica_in_flight")).values())

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    async def load(
        self,
        is_over: Callable[[Results], bool],
        at_once: int = STREAMS,
        act: Callable[[Results], Coroutine[None, None, None]] | None = None,
        tokens: int = TOKENS,
    ) -> Results:
        """Streams one after another on ``at_once`` workers until ``is_over``; ``act`` runs beside them."""
        results: Results = Counter()
        begun: Results = Counter()

        async def work() -> None:
            while not is_over(results) and not is_over(begun):
                begun["begun"] += 1
                results[await self._stream(tokens)] += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
            if act is not None:
                group.create_task(act(results))
        return results

    async def _stream(self, tokens: int) -> str:
        asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello " * 20}]}
        body = json.dumps({**asked, "tokens": tokens, "pause_s": PAUSE_S if tokens > 2 else 0.0}).encode()
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
        )
        data = b""
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
                    while piece := await reader.read(1 << 18):
                        data = data[:64] + (data[64:] + piece)[-KEPT_BYTES:]
                finally:
                    writer.transport.abort()
        except TimeoutError:
            return "stuck"
        except OSError as error:
            return type(error).__name__
        status = data.split(b" ", 2)[1].decode() if data else "no answer"
        if status != "200":
            return status
        return "complete" if b"[DONE]" in data else "cut" if b"replica_lost" in data else "silent cut"


@asynccontextmanager
async def table(folder: Path) -> AsyncIterator[Table]:
    ports = {"router": free_port(), "status": free_port()}
    replicas = tuple(free_port() for _ in range(3))
    named = ",".join(f"http://127.0.0.1:{port};name=r{number}" for number, port in enumerate(replicas))
    words = ["semgate", "router", "--port", str(ports["router"]), "--status-port", str(ports["status"])]
    words += ["--replicas", named, "--first-byte-seconds", SILENT_SECONDS, "--idle-seconds", SILENT_SECONDS]
    words += [
        "--routing-policy",
        "round_robin",
        "--health-seconds",
        "1",
        "--load-seconds",
        "0",
        "--routing-output-dir",
        str(folder / "routing"),
    ]
    async with AsyncExitStack() as stack:
        pid = await stack.enter_async_context(running(folder / "router", ports, *words))
        found = Table(ports["router"], ports["status"], pid, replicas)
        try:
            for number in range(3):
                await found.start(number)
            await found.recover()
            yield found
        finally:
            for number in tuple(found.processes):
                await found.kill(number)


def enough(results: Results) -> bool:
    return results.total() >= REQUESTS


def show(case: str, results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{case}: {dict(results)}", end="", flush=True)


def test_what_clients_see_of_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        async with table(tmp_path) as found:
            files, memory = found.files(), memory_mb(found.pid, NOW)

            results = await found.load(enough)
            show("no fault", results, capsys)
            assert set(results) == {"complete"}

            async def kill_one(results: Results) -> None:
                await until(lambda: results.total() >= STREAMS)
                await found.kill(0)

            results = await found.load(enough, act=kill_one)
            show("kill -9 of one", results, capsys)
            assert set(results) <= {"complete", "cut"}
            assert results["cut"] <= STREAMS, "only what was in progress"
            await found.start(0)
            await found.recover()

            async def stop_one(results: Results) -> None:
                await until(lambda: results.total() >= STREAMS)
                found.processes[1].send_signal(signal.SIGSTOP)

            results = await found.load(enough, act=stop_one)
            show("SIGSTOP of one", results, capsys)
            assert set(results) <= {"complete", "cut"}
            assert results["cut"] <= STREAMS
            found.processes[1].send_signal(signal.SIGCONT)
            await found.recover()

            broken: dict[Mode, set[str]] = {
                "reset": {"complete", "cut"},
                "bad_chunk": {"complete", "cut"},
                "garbage": {"complete"},
                "long_line": {"complete"},
            }
            for mode, kinds in broken.items():
                await found.change(2, mode)
                if mode == "long_line":
                    results = await found.load(lambda results: results.total() >= LONG_LINES, 8)
                else:
                    results = await found.load(enough)
                show(mode, results, capsys)
                assert set(results) == kinds
            await found.change(2, "ok")

            is_back = asyncio.Event()

            async def kill_all(results: Results) -> None:
                await until(lambda: results.total() >= STREAMS)
                for number in range(3):
                    await found.kill(number)
                await until(lambda: results["502"] + results["503"] >= DEAD_ANSWERS)
                for number in range(3):
                    await found.start(number)
                complete = results["complete"]
                await until(lambda: results["complete"] >= complete + STREAMS)
                is_back.set()

            results = await found.load(lambda _: is_back.is_set(), act=kill_all)
            show("all three dead for a while", results, capsys)
            assert set(results) <= {"complete", "cut", "502", "503"}
            assert results["cut"] <= STREAMS
            await found.recover()

            results = await found.load(lambda results: results.total() >= SHORT_REQUESTS, SHORT_AT_ONCE, tokens=2)
            show(f"{SHORT_REQUESTS} short requests", results, capsys)
            assert results == {"complete": SHORT_REQUESTS}
            assert await found.in_flight() == 0
            await until(lambda: found.files() <= files + MORE_FILES)
            grown = memory_mb(found.pid, NOW) - memory
            with capsys.disabled():
                print(f"\nfiles {files} -> {found.files()}, memory {memory} -> {memory + grown} MB")
            assert grown <= MORE_MB

    asyncio.run(work())
