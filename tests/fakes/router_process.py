"""``semgate router`` as a user starts it, in a process of its own; its log lines are read as they come."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from tests.waiting import PATIENCE_S

SRC = Path(__file__).parents[2] / "src"


class RouterProcess:
    def __init__(self, process: Popen[str]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.port = int(self.wait_for("router started")["port"])

    def wait_for(self, event: str) -> dict[str, Any]:
        """The next line about ``event``; the process writes it or ends, so this cannot hang."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            record = json.loads(line)
            self.lines.append(record)
            if record["event"] == event:
                return dict(record)
        raise AssertionError(f"the router ended before '{event}': {self.lines}")

    def end(self) -> int:
        return self.process.wait(PATIENCE_S)


@contextmanager
def router_process(folder: Path, *flags: str, port: int = 0) -> Iterator[RouterProcess]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SEMGATE_", "SEMANTICKV_"))}
    command = [sys.executable, "-m", "semgate", "router", f"--port={port}", *flags]
    process = Popen(command, cwd=folder, env={**kept, "PYTHONPATH": str(SRC)}, stderr=PIPE, text=True)
    try:
        yield RouterProcess(process)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
