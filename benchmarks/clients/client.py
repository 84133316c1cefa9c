"""What a load client is here: a command that sends a load, and a reader of the figures it wrote."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripts.private_venv import clean_environment

from benchmarks.clients.load import Load, Target

# No model hub is contacted, and no proxy of the machine is between the client and 127.0.0.1.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
    "TOKENIZERS_PARALLELISM": "false",
}
_SHOWN = 600


class ClientError(Exception):
    """The client ended without figures; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class Figures:
    """As the client itself counts them. Times are of the ``ok`` requests, None if there were none."""

    ok: int
    errors: int
    ttft_p50_ms: float | None
    ttft_p90_ms: float | None
    ttft_mean_ms: float | None
    tpot_p50_ms: float | None
    requests_per_s: float | None
    output_tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class Client:
    """``command`` may put files into the folder it is given; the client runs there and leaves its output there."""

    name: str
    command: Callable[[Load, Target, Path], list[str]]
    read: Callable[[Path], Figures]
    missing: Callable[[], str | None] = lambda: None
    environment: Mapping[str, str] = field(default_factory=dict)

    def measure(self, load: Load, target: Target, timeout_s: float) -> Figures:
        with TemporaryDirectory(prefix="clients-") as name:
            folder = Path(name)
            self._run(self.command(load, target, folder), folder, timeout_s)
            try:
                return self.read(folder)
            except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
                raise ClientError(f"its output is not as expected: {type(error).__name__} {error}") from error

    def _run(self, command: list[str], folder: Path, timeout_s: float) -> None:
        log = folder / "client.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=clean_environment({**_ENVIRONMENT, **self.environment}),
                start_new_session=True,
            )
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise ClientError(f"not done after {timeout_s:.0f} s; its output ends: {_end_of(log)}") from None
            finally:
                _end(process)
        if code != 0:
            raise ClientError(f"exit code {code}; its output ends: {_end_of(log)}")


def number(value: Any) -> float | None:
    return None if value is None else float(value)


def _end(process: subprocess.Popen[bytes]) -> None:
    """With its workers: they are in its process group, which no other process has until it is collected."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end_of(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace").strip()[-_SHOWN:]
