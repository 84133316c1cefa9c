"""Start engine servers on free ports, wait until they are healthy, end them by id. Standard library only.

``launch(spec)`` gives a running ``EngineServer``, ``launch_all(specs)`` several at once. ``stop()`` ends a server; so
do leaving its ``with`` block, the end of this process and, should this process be killed, a small guard process.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from scripts.engines.ports import free_port, is_free
from scripts.private_venv import ROOT, clean_environment

LOGS = ROOT / ".cache" / "engines"
PORT = "{port}"
LOG_LINES_SHOWN = 40
POLL_S = 0.25
TELL_S = 15.0
STARTUP_TIMEOUT_S = 900.0  # a crowded machine takes many times what an idle one does

# A proxy in the environment is never the way to a server on this machine.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class EngineStartError(Exception):
    """The server did not come up; when it was started, the message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server to start; ``{port}`` in the command stands for the port it gets."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    health_path: str = "/health"
    startup_timeout_s: float = STARTUP_TIMEOUT_S
    stop_timeout_s: float = 20.0


class EngineServer:
    """A started process in a group of its own. ``base_url`` answers once ``wait_healthy`` has returned.

    What the engine leaves in its temporary folder (sockets, rendezvous files) goes with it.
    """

    def __init__(self, spec: ServerSpec) -> None:
        if spec.port is not None and not is_free(spec.port):
            raise EngineStartError(f"{spec.name} cannot have port {spec.port}: it is in use")
        self.spec = spec
        self.port = spec.port or free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.log_path = LOGS / f"{spec.name}-{time.strftime('%Y%m%d-%H%M%S')}-{self.port}.log"
        self.startup_s: float | None = None
        self._started = time.monotonic()
        self._stopped = False
        self._scratch = tempfile.mkdtemp(prefix="engine-")
        LOGS.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [word.replace(PORT, str(self.port)) for word in spec.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=clean_environment({"TMPDIR": self._scratch, **spec.environment}),
                start_new_session=True,
            )
        self._guard = _start_guard(self.pid, self._scratch)
        atexit.register(self.stop)

    @property
    def pid(self) -> int:
        """Id of the server process and of its process group."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return not self._stopped and not _has_exited(self.pid)

    def wait_healthy(self, tell: Callable[[str], None] = lambda line: None) -> Self:
        """Returns when the server answers; stops it and raises ``EngineStartError`` when it dies or takes too long.

        ``tell`` gets a line every ``TELL_S`` seconds: the time so far and the server's last words.
        """
        reported = self._started
        deadline = self._started + self.spec.startup_timeout_s
        while not self.is_healthy():
            if not self.is_running:
                code = self.stop()
                raise EngineStartError(self._report(f"exited with code {code} before it was healthy"))
            if time.monotonic() > deadline:
                self.stop()
                raise EngineStartError(self._report(f"not healthy after {self.spec.startup_timeout_s:.0f} s"))
            if time.monotonic() > reported + TELL_S:
                reported = time.monotonic()
                seconds = reported - self._started
                tell(f"{seconds:.0f} s of at most {self.spec.startup_timeout_s:.0f}: {self.log_tail(1)}")
            time.sleep(POLL_S)
        self.startup_s = time.monotonic() - self._started
        return self

    def stays_healthy(self, patience_s: float = 300.0) -> bool:
        """Whether a server that was healthy still is; asked again, as a busy machine may take long to answer."""
        deadline = time.monotonic() + patience_s
        while not self.is_healthy():
            if not self.is_running or time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def is_healthy(self) -> bool:
        """Whether it answers now."""
        if not self.is_running:
            return False
        try:
            with _direct.open(self.base_url + self.spec.health_path, timeout=5) as answer:
                return 200 <= int(answer.status) < 300
        except (OSError, urllib.error.URLError, http.client.HTTPException):
            return False

    def stop(self) -> int:
        """End the server, first politely, then its whole group by force; its exit code. Safe to repeat."""
        if not self._stopped:
            self._stopped = True
            if not _has_exited(self.pid):
                self._process.terminate()
                _wait_exit(self.pid, self.spec.stop_timeout_s)
            # The exited leader was not collected yet, so its id, and the group's, cannot belong to another process.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            _wait_group_gone(self.pid, timeout_s=60.0)
            shutil.rmtree(self._scratch, ignore_errors=True)
            _dismiss_guard(self._guard)
            atexit.unregister(self.stop)
        return int(self._process.returncode)

    def log_tail(self, lines: int = LOG_LINES_SHOWN) -> str:
        return "\n".join(self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _report(self, what: str) -> str:
        shown = self.log_path.relative_to(ROOT) if self.log_path.is_relative_to(ROOT) else self.log_path
        return f"{self.spec.name} {what}; last lines of {shown}:\n{self.log_tail()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def launch(spec: ServerSpec, tell: Callable[[str], None] = lambda line: None) -> EngineServer:
    """Start one server and wait until it is healthy."""
    return launch_all([spec], tell)[0]


def launch_all(
    specs: Iterable[ServerSpec], tell: Callable[[str], None] = lambda line: None
) -> tuple[EngineServer, ...]:
    """Start all servers, then wait for all; when one fails, none is left."""
    with contextlib.ExitStack() as undo:
        servers = tuple(undo.enter_context(EngineServer(spec)) for spec in specs)
        for server in servers:
            server.wait_healthy(tell)
        undo.pop_all()
    return servers


def _start_guard(group: int, scratch: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(Path(__file__).with_name("guard.py")), str(group), scratch]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def _dismiss_guard(guard: subprocess.Popen[bytes]) -> None:
    guard.communicate(b"stopped\n")


def _has_exited(pid: int) -> bool:
    """Whether our child has ended, without collecting it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _wait_exit(pid: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not _has_exited(pid) and time.monotonic() < deadline:
        time.sleep(0.05)


def _wait_group_gone(group: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while _has_members(group) and time.monotonic() < deadline:
        time.sleep(0.05)


def _has_members(group: int) -> bool:
    """Whether a process of the group still runs; ended ones may wait long for their new parent to collect them."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, of_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(of_group) == group and state != "Z":
                return True
    return False
