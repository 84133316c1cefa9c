"""Our servers as processes, with every listener open, and what they take of the machine."""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from scripts.engines.ports import free_port
from tests.fakes.fault_replica import FaultReplica

START_SECONDS: Final = 600.0
SRC: Final = Path(__file__).parents[2] / "src"
KEY: Final = "a client's key"
PEAK: Final = "VmHWM"
NOW: Final = "VmRSS"


@dataclass(frozen=True, slots=True)
class Served:
    """``ports`` by the listener's name; ``health``: the port and path of a probe."""

    pid: int
    ports: Mapping[str, int]
    health: tuple[int, str]


def memory_mb(pid: int, which: str) -> int:
    found = re.search(which + r":\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) // 1024


@asynccontextmanager
async def running(folder: Path, ports: Mapping[str, int], *words: str) -> AsyncIterator[int]:
    """The process id of ``python -m WORDS``, from when every port listens until it is ended on leaving."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"PYTHONPATH": str(SRC), "PATH": "", "HOME": str(folder)}
    command = (sys.executable, "-m", *words)
    async with listening(command, folder, ports.values(), environment, START_SECONDS) as process:
        yield process.pid


@asynccontextmanager
async def listening(
    command: Sequence[str],
    folder: Path,
    ports: Collection[int],
    environment: Mapping[str, str],
    start_seconds: float,
) -> AsyncIterator[Process]:
    """A process from when every port listens until it is ended on leaving; what it prints is in ``folder``."""
    with (folder / "printed").open("wb") as printed:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            cwd=folder,
            env=dict(environment),
        )
    try:
        async with asyncio.timeout(start_seconds):
            for port in ports:
                while not await listens(port):
                    if process.returncode is not None:
                        raise AssertionError(f"{command[0]} ended: {(folder / 'printed').read_text()[-4000:]}")
                    await asyncio.sleep(0.05)
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(60.0):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.transport.abort()
    return True


@asynccontextmanager
async def _gate(command: str, folder: Path) -> AsyncIterator[Served]:
    """Client keys and the admin port are the router's; a request without a key must not cost more than its refusal."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = FaultReplica(name="engine")
    await engine.start()
    ports = {command: free_port(), f"{command}, status": free_port()}
    words = ["--port", str(ports[command]), "--status-port", str(ports[f"{command}, status"])]
    if command == "router":
        keys, admin = folder / "keys.toml", folder / "admin.key"
        keys.write_text(f'[tenants.t]\nkeys = ["sha256:{hashlib.sha256(KEY.encode()).hexdigest()}"]\n')
        admin.write_text("an administrator's key of sufficient length\n")
        ports["router, admin"] = free_port()
        words += ["--replicas", engine.origin, "--client-keys-file", str(keys)]
        words += ["--admin-port", str(ports["router, admin"]), "--admin-api-key-file", str(admin)]
    else:
        words += ["--upstream-base-url", engine.origin]
    words += ["--routing-output-dir" if command == "router" else "--trace-output-dir", str(folder / "written")]
    try:
        async with running(folder, ports, "semgate", command, *words) as pid:
            yield Served(pid, ports, (ports[f"{command}, status"], "/healthz"))
    finally:
        await engine.die()


@asynccontextmanager
async def _simulator(folder: Path) -> AsyncIterator[Served]:
    ports = {"simulator": free_port()}
    async with running(folder, ports, "kvmend", "simulate", "serve", "--port", str(ports["simulator"])) as pid:
        yield Served(pid, ports, (ports["simulator"], "/health"))


SERVED: Final[Mapping[str, Callable[[Path], AbstractAsyncContextManager[Served]]]] = {
    "router": partial(_gate, "router"),
    "proxy": partial(_gate, "proxy"),
    "simulator": _simulator,
}
