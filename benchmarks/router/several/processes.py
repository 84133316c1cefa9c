"""Routers and engines as processes; all are killed on leaving."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final

from scripts.engines.ports import free_port

from benchmarks.documents import ROOT
from benchmarks.router.several.engines import BLOCK_TOKENS

SECRET: Final = "a secret of thirty-two bytes at least"
Engine = Mapping[str, int]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SEMGATE_", "SEMANTICKV_"))}
    return {**kept, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


class Engines:
    """``announce`` publishes the blocks that were named at the start."""

    def __init__(self, count: int, capacity: int, announced: int, buffered: int) -> None:
        words = map(str, (count, capacity, announced, buffered))
        command = [sys.executable, "-m", "benchmarks.router.several.engines", *words]
        self._process = Popen(command, env=_environment(), cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True)
        assert self._process.stdout is not None
        self.engines: Sequence[Engine] = json.loads(self._process.stdout.readline())

    def announce(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("announce\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Router:
    """``started_s`` and ``ready_s`` on the monotonic clock: before the process exists, and its first ready /readyz."""

    def __init__(self, folder: Path, engines: Sequence[Engine], store: str | None, *more: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        secret = folder / "secret"
        secret.touch(0o600)
        secret.write_text(SECRET, encoding="utf-8")
        self.port, self.status_port = free_port(), free_port()
        at = "http://127.0.0.1:{http};name=e{n};events=tcp://127.0.0.1:{events};replay=tcp://127.0.0.1:{replay}"
        flags = [
            f"--port={self.port}",
            f"--status-port={self.status_port}",
            f"--digest-secret-file={secret}",
            f"--routing-output-dir={folder}",
            "--routing-policy=precise_prefix",
            f"--block-tokens={BLOCK_TOKENS}",
            "--replicas=" + ",".join(at.format(n=number, **each) for number, each in enumerate(engines)),
            *([] if store is None else [f"--shared-state-url={store}", "--snapshot-seconds=2"]),
            *more,
        ]
        self.started_s = time.monotonic()
        command = [sys.executable, "-m", "semgate", "router", *flags]
        self.process = Popen(command, env=_environment(), cwd=folder, stderr=(folder / "log").open("ab"))
        self.ready_s = self._ready()
        self.ready_cpu_s = self.cpu_s()

    def metric(self, name: str) -> float:
        """The sum over its labels; 0 if it is not there."""
        text = self._read("/metrics") or ""
        return sum(
            float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))
        )

    def cpu_s(self) -> float:
        """Processor time that the router has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _ready(self) -> float:
        while self._read("/readyz") is None:
            if self.process.poll() is not None:
                raise RuntimeError(f"the router ended with code {self.process.returncode}")
            time.sleep(0.02)
        return time.monotonic()

    def _read(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.status_port}{path}", timeout=10) as reply:
                return str(reply.read().decode())
        except (urllib.error.URLError, OSError):
            return None


@contextmanager
def closing_all() -> Iterator[list[Any]]:
    """Whatever is put into the list is closed or killed, the last first."""
    held: list[Any] = []
    try:
        yield held
    finally:
        for each in reversed(held):
            (each.kill if isinstance(each, Router) else each.close)()
