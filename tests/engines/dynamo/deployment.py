"""Processes of a small Dynamo deployment on loopback, and the router of ours that runs inside Dynamo's environment."""

from __future__ import annotations

import json
import re
import select
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from scripts.engines import dynamo
from scripts.engines.ports import free_port
from scripts.models.known import SMOLLM2
from scripts.private_venv import ROOT, clean_environment, python_of
from tests.waiting import PATIENCE_S

BLOCK_TOKENS = 16
MODEL = "mock"
KEY = "a key for tests only"
PLANES = ("--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq")
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def missing() -> str | None:
    if not dynamo.is_installed():
        return "no Dynamo in .engines/dynamo; run: python -m scripts.engines.dynamo"
    if not SMOLLM2.tokenizer.is_file():
        return "no tokenizer in .engines/models; run: make models"
    return None


def wait_for(holds: Callable[[], bool], process: subprocess.Popen[Any], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert process.poll() is None, f"ended with {process.returncode}:\n{log.read_text()[-3000:]}"
        assert time.monotonic() < deadline, f"not ready in time:\n{log.read_text()[-3000:]}"
        time.sleep(0.1)


class Processes:
    """Everything started here ends here, in reverse order."""

    def __init__(self) -> None:
        self._running: list[tuple[subprocess.Popen[Any], IO[bytes]]] = []

    def start(self, command: tuple[str, ...], log: Path, environment: dict[str, str]) -> subprocess.Popen[Any]:
        file = log.open("wb")
        process = subprocess.Popen(
            ["nice", "-n", "15", *command], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment
        )
        self._running.append((process, file))
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process, file in reversed(self._running):
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            file.close()


class Deployment(Processes):
    """Two mocker workers and a front-end that routes by KV events."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        room = folder / "discovery"
        self.environment = clean_environment({"DYN_FILE_KV": str(room), "HF_HUB_OFFLINE": "1"})
        self._instances = room / "v1" / "instances"

    def __enter__(self) -> Self:
        python = str(python_of(dynamo.RECIPE))
        mocker_log, front_log = self.folder / "mocker.log", self.folder / "front.log"
        mocker = self.start(
            (
                *(python, "-m", "dynamo.mocker", "--model-path", str(SMOLLM2.folder), "--model-name", MODEL),
                *("--num-workers", "2", "--speedup-ratio", "10", "--block-size", str(BLOCK_TOKENS), *PLANES),
            ),
            mocker_log,
            self.environment,
        )
        wait_for(lambda: len(self._found()) >= 2, mocker, mocker_log)
        port = self.url.rpartition(":")[2]
        front = self.start(
            (
                *(python, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", port),
                *("--router-mode", "kv", "--kv-cache-block-size", str(BLOCK_TOKENS), *PLANES),
            ),
            front_log,
            self.environment,
        )
        wait_for(self._serves, front, front_log)
        return self

    def _found(self) -> list[Path]:
        return [path for path in self._instances.rglob("*generate*") if path.is_file()]

    def _serves(self) -> bool:
        try:
            with _direct.open(f"{self.url}/v1/models", timeout=5) as answer:
                return MODEL in answer.read().decode()
        except (OSError, urllib.error.URLError):
            return False

    def complete(self, prompt: str, worker_id: int | None = None) -> dict[str, Any]:
        """A completion through the real front-end, pinned to a worker if one is named; says who served it."""
        extension: dict[str, Any] = {"extra_fields": ["worker_id"]}
        if worker_id is not None:
            extension["backend_instance_id"] = worker_id
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 2, "nvext": extension}
        request = urllib.request.Request(
            f"{self.url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with _direct.open(request, timeout=300) as answer:
            reply: dict[str, Any] = json.loads(answer.read())
            return reply

    def router(self) -> RouterProcess:
        return RouterProcess(self)


class RouterProcess:
    """``drive_router.py`` inside Dynamo's environment: one JSON line in, one out."""

    def __init__(self, deployment: Deployment) -> None:
        environment = dict(deployment.environment)
        environment["PYTHONPATH"] = str(ROOT / "src")
        script = Path(__file__).with_name("drive_router.py")
        self._log = (deployment.folder / "router.log").open("wb")
        self._process = subprocess.Popen(
            ["nice", "-n", "15", str(python_of(dynamo.RECIPE)), str(script), KEY, str(BLOCK_TOKENS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def ask(self, command: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([command, arguments]).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        """Dynamo writes log lines, too; ours begin with a mark."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self._process.stdout], [], [], 5.0)
            line = self._process.stdout.readline() if ready else b""
            if found := re.match(rb"@@ (.*)", line):
                return json.loads(found.group(1))
            assert line or self._process.poll() is None, "the router process ended"
        raise AssertionError("the router process did not answer")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()
