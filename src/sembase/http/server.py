"""Runs a plain ASGI callable on uvicorn's httptools protocol: limits, TLS, graceful shutdown. One process, one loop.

In: the app and where to listen; out: a running server. Used by the gateway, the simulator's service and tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from pathlib import Path
from typing import Any, Final, TypeVar

import uvicorn
from uvicorn.server import ServerState

from sembase.errors import ConfigurationError
from sembase.http.server_protocol import Limits, ServerProtocol, check_uvicorn

App = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]
T = TypeVar("T")
_BACKLOG: Final = 4096
_KEEP_ALIVE_SECONDS: Final = 75
# A request leaves no reference cycle, so a collection finds nothing; by default they took 20 % of the time.
_GC_THRESHOLDS: Final = (20_000, 50, 1_000)
# Writer threads compute in Python: at the usual 5 ms one of them would hold up the streams for that long.
_SWITCH_SECONDS: Final = 0.0005
# After the time limit, for replies that were cut to send their error event.
_FAREWELL_SECONDS: Final = 1.0
_NOT_OURS: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class HttpServer:
    """``start`` listens, ``stop`` waits up to ``shutdown_seconds`` for open replies, and a second for those it cuts."""

    def __init__(
        self,
        app: App,
        *,
        host: str,
        port: int,
        tls_cert_file: Path | None = None,
        tls_key_file: Path | None = None,
        shutdown_seconds: float = 30.0,
        limits: Limits | None = None,
        flags: tuple[str, str] = ("--host", "--port"),
        extra: str = "gateway",
    ) -> None:
        check_uvicorn(extra)
        self._config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            ssl_certfile=tls_cert_file,
            ssl_keyfile=tls_key_file,
        )
        self._address = (host, port)
        self._flags = flags
        self._shutdown_seconds = shutdown_seconds
        self._limits = limits or Limits()
        self._state = ServerState()
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._waiting: asyncio.Timeout | None = None
        self.is_stopping = False

    @property
    def open_connections(self) -> int:
        return len(self._state.connections)

    def bind(self) -> None:
        """Takes the port, so that a port in use is reported early; clients are refused until `start`."""
        if self._listener is None:
            self._listener = _bound(*self._address, self._flags)

    async def start(self) -> int:
        """Returns the port it listens on."""
        self.bind()
        listener, self._listener = self._listener, None
        assert listener is not None
        try:
            self._config.load()
        except OSError as error:
            listener.close()
            raise ConfigurationError(f"the TLS certificate or key cannot be used: {error}") from None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ServerProtocol(self._config, self._state, self._limits, loop),
            sock=listener,
            ssl=self._config.ssl,
            backlog=_BACKLOG,
        )
        port: int = listener.getsockname()[1]
        return port

    async def stop(self) -> None:
        self.is_stopping = True
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for connection in tuple(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._shutdown_seconds) as self._waiting:
                    await asyncio.wait(tuple(self._state.tasks))
            self._waiting = None
        await self._cut()
        await server.wait_closed()

    async def _cut(self) -> None:
        """Ends the remaining replies. A client that stopped reading cannot receive a reason; it is not waited for."""
        for connection in tuple(self._state.connections):
            if isinstance(connection, ServerProtocol) and connection.is_stalled:
                connection.transport.abort()
        unfinished = tuple(self._state.tasks)
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=_FAREWELL_SECONDS)
        for connection in tuple(self._state.connections):
            connection.transport.abort()

    async def serve_until_signal(self) -> None:
        """Serves until SIGTERM or Ctrl-C; call it after `start`. A second signal does not wait for open replies."""
        loop = asyncio.get_running_loop()
        signals: asyncio.Queue[None] = asyncio.Queue()
        for number in _SIGNALS:
            loop.add_signal_handler(number, signals.put_nowait, None)
        try:
            await signals.get()
            stopping = loop.create_task(self.stop())
            hurry = loop.create_task(signals.get())
            await asyncio.wait((stopping, hurry), return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done() and self._waiting is not None:
                self._waiting.reschedule(loop.time())
            hurry.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hurry
            await stopping
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs on uvloop where it is installed. The garbage collector runs less often, and never over the modules."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        import uvloop  # noqa: PLC0415  (optional: faster, not needed)
    except ModuleNotFoundError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _bound(host: str, port: int, flags: tuple[str, str]) -> socket.socket:
    """An address of another machine is a wrong setting (exit code 2); a port in use is the environment's state (3)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, or asyncio leaves Nagle on for accepted connections: 40 ms for each small reply.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setblocking(False)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).lower()
        if error.errno in _NOT_OURS:
            raise ConfigurationError(
                f"cannot listen on {host}:{port}: {reason}; choose another with {flags[0]}"
            ) from None
        raise OSError(f"cannot listen on {host}:{port}: {reason}; choose another with {flags[1]}") from None
    return listener
