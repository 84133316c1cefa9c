"""Several processes behind one port: the parent binds it, starts the workers and restarts one that ends.

All workers accept from the one listening socket, which the parent keeps open: a connection that waits there is taken by
another worker when one is killed. The parent serves nothing and imports nothing heavy. Workers see the end of a pipe if
the parent is killed, and stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sembase.command_line import ExitCode
from semgate.http.server import bind_listener
from semgate.logs import log
from semgate.settings import RouterSettings

FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 10.0
STEADY_S: Final = 30.0
# A wrong setting or a port in use stays wrong: restarting would hide it.
_FINAL_CODES: Final = (int(ExitCode.USAGE), int(ExitCode.ENVIRONMENT))


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """What a worker gets from its parent, as ``--worker INDEX:LISTENER:PARENT`` (file descriptors)."""

    index: int
    listener_fd: int
    parent_fd: int

    def __str__(self) -> str:
        return f"{self.index}:{self.listener_fd}:{self.parent_fd}"

    @staticmethod
    def parse(text: str) -> WorkerPlace:
        index, listener, parent = (int(part) for part in text.split(":"))
        return WorkerPlace(index, listener, parent)

    def settings(self, settings: RouterSettings) -> RouterSettings:
        """Each worker has a status port of its own, the first has the admin port, and each its decision files."""
        folder = settings.routing_output_dir
        return replace(
            settings,
            status_port=settings.status_port + self.index if settings.status_port else 0,
            admin_port=0 if self.index else settings.admin_port,
            routing_output_dir=folder / f"worker-{self.index}" if self.index else folder,
        )

    def listener(self) -> socket.socket:
        return socket.socket(fileno=self.listener_fd)

    def stop_with_parent(self) -> None:
        """On the running loop: the parent's end of the pipe closes with the parent."""
        asyncio.get_running_loop().add_reader(self.parent_fd, self._parent_ended)

    def _parent_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self.parent_fd)
        os.kill(os.getpid(), signal.SIGTERM)


class Workers:
    """``run`` until a signal stops it. ``words``: the command line of a worker, without ``--worker``."""

    def __init__(self, settings: RouterSettings, words: Sequence[str]) -> None:
        self._settings = settings
        self._words = tuple(words)
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._code = ExitCode.OK

    async def run(self) -> ExitCode:
        settings, loop = self._settings, asyncio.get_running_loop()
        listener = bind_listener(settings.host, settings.port, ("--host", "--port"))
        reader, writer = os.pipe()
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop, listener)
            loop.add_signal_handler(signal.SIGHUP, self._forward, signal.SIGHUP)
            log(logging.INFO, "workers starting", workers=settings.workers, port=listener.getsockname()[1])
            places = (WorkerPlace(index, listener.fileno(), reader) for index in range(settings.workers))
            await asyncio.gather(*(self._keep(each, listener) for each in places))
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)
            listener.close()
            os.close(reader)
            os.close(writer)
        return self._code

    async def _keep(self, place: WorkerPlace, listener: socket.socket) -> None:
        pause_s, loop = FIRST_PAUSE_S, asyncio.get_running_loop()
        while not self._stopping.is_set():
            began_s = loop.time()
            command = (sys.executable, "-m", "semgate", *self._words, f"--worker={place}")
            worker = await asyncio.create_subprocess_exec(*command, pass_fds=(place.listener_fd, place.parent_fd))
            self._running[place.index] = worker
            if self._stopping.is_set():
                worker.terminate()
            code = await worker.wait()
            del self._running[place.index]
            if self._stopping.is_set():
                return
            if code in _FINAL_CODES:
                self._code = ExitCode(code)
                self._stop(listener)
                return
            if loop.time() - began_s >= STEADY_S:
                pause_s = FIRST_PAUSE_S
            log(logging.ERROR, "worker ended", worker=place.index, pid=worker.pid, code=code, again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _stop(self, listener: socket.socket) -> None:
        """A second signal is forwarded too; the workers then do not wait for open streams."""
        self._stopping.set()
        listener.close()  # while it is open here, new connections would wait for nothing
        self._forward(signal.SIGTERM)

    def _forward(self, number: int) -> None:
        for worker in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(number)
