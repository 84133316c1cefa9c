"""Free TCP ports, below the range of ephemeral ports: no other process takes one while an engine imports.

A port that was handed out is reserved for this process by a name in the abstract socket space, which ends with it: no
other process that asks here gets it, also before the server that was given it listens.
"""

from __future__ import annotations

import random
import socket
import sys

FIRST, LAST = 20_000, 32_000
_given: set[int] = set()
_draws = random.SystemRandom()  # the shared generator is seeded by property tests, in every process alike


def free_port() -> int:
    """A port that is free and that was not handed out before."""
    for _ in range(200):
        port = _draws.randint(FIRST, LAST)
        if port not in _given and is_free(port) and _reserve(port):
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


def _reserve(port: int) -> bool:
    """False: another process has it."""
    if sys.platform == "linux":  # no other system has such names
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            name.bind(f"\0kvmend-port-{port}")
        except OSError:
            name.close()
            return False
        name.detach()  # open as long as this process runs
    _given.add(port)
    return True
