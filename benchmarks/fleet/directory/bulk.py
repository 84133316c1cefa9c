"""Entries of a directory written as raw commands: what ``ValkeyDirectory.announce`` writes, without its client.

10^8 entries take minutes instead of an hour. One server.
"""

from __future__ import annotations

import socket
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from semblend.fleet.directory.valkey import LIFETIME_S
from semblend.fleet.keys import ID_BYTES

TIMEOUT_S: Final = 120.0  # of one batch; a server that doubles its table is slow for a moment
_OK: Final = b"+OK\r\n"


class BulkWriter:
    """A connection to the server of ``client``."""

    def __init__(self, client: Any, space: bytes) -> None:
        place = client.connection_pool.connection_kwargs
        self._socket = socket.create_connection((place["host"], place["port"]), TIMEOUT_S)
        self._space = space

    def announce(self, donor_ids: NDArray[np.uint8], anchors: NDArray[np.uint64]) -> None:
        """``donor_ids`` [donors, ID_BYTES], ``anchors`` [donors, anchors of each]. Records are empty."""
        each = anchors.shape[1]
        records = _sets(b"d" + self._space, donor_ids, np.empty((len(donor_ids), 0), np.uint8))
        words = anchors.astype("<u8").reshape(-1, 1).view(np.uint8)
        self._socket.sendall(records + _sets(b"a" + self._space, words, np.repeat(donor_ids, each, axis=0)))
        due = len(_OK) * (len(donor_ids) + anchors.size)
        answers = bytearray()
        while len(answers) < due:
            if not (part := self._socket.recv(1 << 20)):
                raise ConnectionError("the server closed the connection")
            answers += part
        if answers != _OK * (due // len(_OK)):
            raise ConnectionError(f"the server refused an entry: {bytes(answers[:200])!r}")

    def close(self) -> None:
        self._socket.close()


def _sets(prefix: bytes, keys: NDArray[np.uint8], values: NDArray[np.uint8]) -> bytes:
    """SET commands, one per row of ``keys`` (each after ``prefix``) and ``values``."""
    key_bytes, value_bytes = len(prefix) + keys.shape[1], values.shape[1]
    before = b"*5\r\n$3\r\nSET\r\n$%d\r\n%b" % (key_bytes, prefix)
    between = b"\r\n$%d\r\n" % value_bytes
    lifetime = b"%d" % LIFETIME_S
    after = b"\r\n$2\r\nEX\r\n$%d\r\n%b\r\n" % (len(lifetime), lifetime)
    same = (np.tile(np.frombuffer(part, np.uint8), (len(keys), 1)) for part in (before, between, after))
    first, middle, last = same
    return np.hstack([first, keys, middle, values, last]).tobytes()


def random_ids(random: np.random.Generator, count: int) -> NDArray[np.uint8]:
    return np.frombuffer(random.bytes(count * ID_BYTES), np.uint8).reshape(count, ID_BYTES)
