"""A fleet of ``dynamo.mocker`` workers as one server: all its processes live in one group and end together.

``pairs_fleet`` gives every worker an HTTP front-end of its own (a mocker speaks only Dynamo's request plane), for a
router that chooses among HTTP replicas; ``kv_fleet`` puts Dynamo's KV router before the same workers. This module is
also the supervisor process: a plan (JSON) in, ``/health`` answers 200 once every front-end lists the model.
Per pair about 320 MB of memory, nearly no processor time while idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.engines import dynamo
from scripts.engines.ports import free_port
from scripts.engines.server import PORT, ServerSpec
from scripts.models.known import SMOLLM2
from scripts.private_venv import clean_environment, python_of

MODEL = "mock"
BLOCK_TOKENS = 64
_POLL_S = 0.25
_CARD_S = 60.0
_PLANES = ("--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq")
# Everything stays on loopback; by itself Dynamo announces the machine's outer address.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "DYN_LOG": "warn",
    "DYN_TCP_RPC_HOST": "127.0.0.1",
    "DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1",
    "DYN_EVENT_PLANE_HOST": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class MockerOptions:
    """``speedup`` 1 is the mocker's own pace: about 21 microseconds of prefill per token."""

    workers: int = 16
    speedup: float = 1.0
    blocks: int = 16_384
    engine: str = "vllm"


@dataclass(frozen=True, slots=True)
class Worker:
    """One replica as it is configured in our router."""

    url: str
    events: str
    replay: str


@dataclass(frozen=True, slots=True)
class Child:
    command: tuple[str, ...]
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Fleet:
    spec: ServerSpec
    urls: tuple[str, ...]
    workers: tuple[Worker, ...] = ()


def missing() -> str | None:
    if not dynamo.is_installed():
        return "no Dynamo in .engines/dynamo; run: python -m scripts.engines.dynamo"
    if not SMOLLM2.tokenizer.is_file():
        return "no tokenizer in .engines/models; run: make models"
    return None


def pairs_fleet(options: MockerOptions) -> Fleet:
    """Each worker with a front-end and a discovery folder of its own: that front-end can reach no other worker."""
    children, workers = [], []
    for number in range(options.workers):
        port, events, replay = free_port(), free_port(), free_port()
        room = f"pair-{number}"
        children.append(
            _mocker(options, room, ("--zmq-kv-events-ports", str(events), "--zmq-replay-ports", str(replay)))
        )
        children.append(_front_end(room, port, "round-robin"))
        workers.append(Worker(f"http://127.0.0.1:{port}", f"tcp://127.0.0.1:{events}", f"tcp://127.0.0.1:{replay}"))
    urls = tuple(worker.url for worker in workers)
    return Fleet(_spec("mocker-pairs", children, urls, 1), urls, tuple(workers))


def kv_fleet(options: MockerOptions, more: tuple[str, ...] = ()) -> Fleet:
    """The same worker processes behind one front-end that routes by Dynamo's own index of the same ZeroMQ events."""
    room, port = "kv", free_port()
    children = [_mocker(options, room, ("--zmq-kv-events-ports", str(free_port()))) for _ in range(options.workers)]
    children.append(_front_end(room, port, "kv", more))
    url = f"http://127.0.0.1:{port}"
    return Fleet(_spec("mocker-kv", children, (url,), options.workers), (url,))


def _mocker(options: MockerOptions, room: str, more: tuple[str, ...]) -> Child:
    command = (
        *(str(python_of(dynamo.RECIPE)), "-m", "dynamo.mocker", "--model-path", str(SMOLLM2.folder)),
        *("--model-name", MODEL, "--num-workers", "1", "--engine-type", options.engine),
        *("--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override", str(options.blocks)),
        *("--speedup-ratio", str(options.speedup), *_PLANES, *more),
    )
    return Child(command, {"DYN_FILE_KV": room})


def _front_end(room: str, port: int, mode: str, more: tuple[str, ...] = ()) -> Child:
    command = (
        *(str(python_of(dynamo.RECIPE)), "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port)),
        *("--router-mode", mode, "--kv-cache-block-size", str(BLOCK_TOKENS), *_PLANES, *more),
    )
    return Child(command, {"DYN_FILE_KV": room})


def _spec(name: str, children: list[Child], urls: tuple[str, ...], instances: int) -> ServerSpec:
    plan = {"children": [asdict(child) for child in children], "urls": urls, "instances": instances}
    command = (sys.executable, "-m", "benchmarks.router.fleet.mockers", "--port", PORT, "--plan", json.dumps(plan))
    return ServerSpec(name, command, startup_timeout_s=180.0)


class Supervisor:
    """Starts the children of a plan, answers whether they serve, ends when one of them does."""

    def __init__(self, plan: dict[str, object], folder: Path) -> None:
        self._children = [Child(tuple(c["command"]), c["environment"]) for c in plan["children"]]  # type: ignore[attr-defined]
        self._urls = [str(url) for url in plan["urls"]]  # type: ignore[attr-defined]
        self._instances = int(str(plan["instances"]))
        self._folder = folder
        self._processes: list[asyncio.subprocess.Process] = []
        self._ready = False

    async def run(self, port: int) -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        server = await asyncio.start_server(self._answer, "127.0.0.1", port)
        for child in sorted(self._children, key=lambda child: "dynamo.frontend" in child.command):
            self._processes.append(await self._spawn(child))
        waiting = [asyncio.create_task(process.wait()) for process in self._processes]
        stopping, watching = asyncio.create_task(stop.wait()), asyncio.create_task(self._watch())
        await asyncio.wait([*waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
        died = [number for number, task in enumerate(waiting) if task.done()]
        if died:
            print(f"children that ended by themselves: {[self._children[n].command[2:] for n in died]}", flush=True)
        watching.cancel()
        server.close()
        await self._end_children(waiting)
        return 1 if died else 0

    async def _spawn(self, child: Child) -> asyncio.subprocess.Process:
        """A front-end that finds its worker's card at its first look serves in 2 s; one that looks earlier, in 170."""
        room = self._folder / child.environment["DYN_FILE_KV"]
        deadline = time.monotonic() + _CARD_S
        while "dynamo.frontend" in child.command and not _has_card(room) and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
        environment = clean_environment({**_ENVIRONMENT, "DYN_FILE_KV": str(room)})
        return await asyncio.create_subprocess_exec(*child.command, cwd=self._folder, env=environment)

    async def _end_children(self, waiting: list[asyncio.Task[int]]) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.terminate()
        _, late = await asyncio.wait(waiting, timeout=10.0)
        for process in self._processes:
            if late and process.returncode is None:
                process.kill()

    async def _watch(self) -> None:
        left = set(self._urls)
        while left:
            await asyncio.sleep(_POLL_S)
            left = {url for url in left if not await serves(url, self._instances)}
        self._ready = True

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            status = b"200 OK" if self._ready else b"503 Service Unavailable"
            writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        writer.close()


def _has_card(room: Path) -> bool:
    return any(path.is_file() for path in (room / "v1" / "mdc").rglob("*"))


async def serves(url: str, instances: int) -> bool:
    """Whether a front-end knows the model and as many workers as it should."""
    try:
        models, health = json.loads(await _get(url, "/v1/models")), json.loads(await _get(url, "/health"))
    except (OSError, ValueError):
        return False
    known = [each for each in health.get("instances", ()) if each["endpoint"] == "generate"]
    return any(model["id"] == MODEL for model in models.get("data", ())) and len(known) >= instances


async def _get(url: str, path: str) -> bytes:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 10.0)
    finally:
        writer.close()
    return answer.partition(b"\r\n\r\n")[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--plan", required=True, help="children, urls and instances as JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mockers-") as folder:
        return asyncio.run(Supervisor(json.loads(chosen.plan), Path(folder)).run(chosen.port))


if __name__ == "__main__":
    raise SystemExit(main())
