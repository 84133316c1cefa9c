"""Free TCP ports, below the range of ephemeral ports: no other process takes one while an engine imports."""

from __future__ import annotations

import random
import socket

FIRST, LAST = 20_000, 32_000
_given: set[int] = set()


def free_port() -> int:
    """A port that is free and that this process has not handed out before."""
    for _ in range(200):
        port = random.randint(FIRST, LAST)
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise OSError(f"no free port between {FIRST} and {LAST}")


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Connections of a server that has ended keep its port for a minute; a new server may listen all the same.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
