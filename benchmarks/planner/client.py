"""Starts the process of one subject and sends it commands to fill a store and look up prompts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Self

from scripts.private_venv import ROOT

_DROPPED = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


class SubjectFailedError(Exception):
    """The process died; the message has the end of its stderr."""


class SubjectProcess:
    """A context manager around one worker process."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        inherited = {name: value for name, value in os.environ.items() if name not in _DROPPED}
        threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            list(command),
            cwd=ROOT,
            env={**inherited, **threads, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        if error is not None:
            self._process.kill()
        elif not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()
        self._errors.close()

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"operation": operation, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise SubjectFailedError(self._errors.read()[-2_000:])
        answer: dict[str, Any] = json.loads(line)
        return answer


def our_environment() -> dict[str, str]:
    """Our sources are on the path of our own process alone: a rival has the same import name."""
    return {"PYTHONPATH": str(ROOT / "src")}


def our_command(lists: bool = False) -> list[str]:
    return [sys.executable, "-m", "benchmarks.planner.ours", *(["--lists"] if lists else [])]
