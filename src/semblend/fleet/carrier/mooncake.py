"""Donor bytes in a Mooncake Store: one object per donor, read by ranges into the reader's own buffers.

``mooncake://master:50051?protocol=rdma&device=mlx5_0``; without a protocol it is TCP. The store's nodes hold the bytes
and decide what they evict; ``max_bytes`` is not used here. This client adds no memory to the store.

The store's calls release the interpreter lock, except the set-up of a connection: without a master it would stop every
thread of the process for 4 seconds, so it begins only when the master accepts connections. Calls wait for a node or a
master that has stopped as long as ``LIMITS`` allow. Mooncake reads these from the environment alone, for all clients of
the process; its own defaults are 30 seconds.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, MissingDependencyError
from semblend.fleet.carrier.base import CarrierError, Piece, TooShortError, check_name

try:
    from mooncake.store import MooncakeDistributedStore
except ModuleNotFoundError:
    raise MissingDependencyError("mooncake-transfer-engine-non-cuda", "mooncake", "a Mooncake fleet store") from None
except ImportError as error:  # a shared library that no wheel has
    raise ConfigurationError(
        f"a Mooncake fleet store cannot be loaded: {error}; install the system package libibverbs1"
    ) from None

PREFIX: Final = "kvmend/"  # the store may have other users
LIMITS: Final = {
    "MC_RPC_TIMEOUT_MS": "5000",
    "MC_RPC_CONNECT_TIMEOUT_MS": "2000",
    "MC_TCP_PROGRESS_TIMEOUT_SEC": "5",
    "MC_TCP_STATUS_TIMEOUT_SEC": "5",
    "MC_STORE_CLIENT_SETUP_RETRIES": "1",  # of 4 seconds each without a master; its default is 20
}
CLIENT_BUFFER_BYTES: Final = 16 << 20  # the store's least; our reads and writes do not go through it
RETRY_S: Final = 5.0  # after a connection that failed
LISTENS_S: Final = 2.0  # for the master to accept a connection
# The store's error codes that are answers, not faults.
_INVALID: Final = -600
_NOT_READY: Final = -703
_NOT_FOUND: Final = -704
_EXISTS: Final = -705


class MooncakeCarrier:
    """``place`` is the address of the store's master with options, as in a URL. The first call connects."""

    def __init__(self, place: str, max_bytes: int) -> None:
        self._master, self._options = _parse(place)
        self._lock = threading.Lock()
        self._store: Any = None
        self._retry_at = 0.0
        self._being_put: set[str] = set()

    def put(self, name: str, data: NDArray[np.uint8]) -> bool:
        key, store = self._key(name), self._connected()
        with self._lock:
            if key in self._being_put:
                return False
            self._being_put.add(key)
        try:
            return self._put(store, key, np.ascontiguousarray(data))
        finally:
            with self._lock:
                self._being_put.discard(key)

    def read(self, name: str, pieces: Sequence[Piece]) -> bool:
        key, store = self._key(name), self._connected()
        wanted = [piece for piece in pieces if len(piece.into)]
        if not wanted:
            return self.contains([name])[0]
        with ExitStack() as registered:
            addresses = [self._register(registered, store, piece.into) for piece in wanted]
            answers = store.get_into_ranges(
                addresses,
                [[key]] * len(wanted),
                [[[0]]] * len(wanted),
                [[[piece.offset]] for piece in wanted],
                [[[len(piece.into)]] for piece in wanted],
            )
        codes = [answer[0][0] for answer in answers]
        if codes == [len(piece.into) for piece in wanted]:
            return True
        if _NOT_FOUND in codes or _NOT_READY in codes:
            return False
        if _INVALID in codes and 0 <= store.get_size(key) < max(piece.offset + len(piece.into) for piece in wanted):
            raise TooShortError(f"fleet store mooncake://{self._master}: {name} is too short")
        raise self._fault("read", min(codes))

    def drop(self, name: str) -> bool:
        key, store = self._key(name), self._connected()
        code = store.remove(key, True)  # even if it was read just now: what is dropped is wrong
        if code in (_NOT_FOUND, _NOT_READY):
            return False
        if code:
            raise self._fault("remove", code)
        return True

    def contains(self, names: Sequence[str]) -> list[bool]:
        keys, store = [self._key(name) for name in names], self._connected()
        codes = store.batch_is_exist(keys) if keys else []
        if codes and min(codes) < 0:
            raise self._fault("query", min(codes))
        return [code == 1 for code in codes]

    def _put(self, store: Any, key: str, data: NDArray[np.uint8]) -> bool:
        """The object becomes visible when its session ends; the store forgets sessions whose writer died."""
        (code,) = store.batch_put_session_start([key], [data.nbytes])
        if code == _EXISTS:
            return False
        if code:
            raise self._fault("write", code)
        with ExitStack() as registered:
            try:
                address = self._register(registered, store, data)
                (written,) = store.batch_put_from_multi_buffer_ranges([key], [[address]], [[data.nbytes]], [[0]])
            except CarrierError:
                written = _INVALID
        (code,) = store.batch_put_session_end([key]) if written == data.nbytes else (written,)
        if code:
            store.batch_put_session_revoke([key])
            raise self._fault("write", code)
        return True

    def _register(self, until: ExitStack, store: Any, buffer: NDArray[np.uint8]) -> int:
        """The store moves bytes only into and out of registered memory."""
        address = int(buffer.ctypes.data)
        if code := store.register_buffer(address, buffer.nbytes):
            raise self._fault("use the memory of this process", code)
        until.callback(store.unregister_buffer, address)
        return address

    def _connected(self) -> Any:
        with self._lock:
            if self._store is None:
                if time.monotonic() < self._retry_at:
                    raise CarrierError(f"fleet store mooncake://{self._master} cannot be reached")
                self._store = self._connect()
            return self._store

    def _connect(self) -> Any:
        for name, value in LIMITS.items():
            os.environ.setdefault(name, value)  # noqa: TID251 - what the operator has set stays
        own_name = self._options.get("host") or _own_address(self._master)
        protocol, device = self._options.get("protocol", "tcp"), self._options.get("device", "")
        self._check_master()
        store = MooncakeDistributedStore()
        if code := store.setup(own_name, "P2PHANDSHAKE", 0, CLIENT_BUFFER_BYTES, protocol, device, self._master):
            self._retry_at = time.monotonic() + RETRY_S
            raise self._fault("connect", code)
        return store

    def _check_master(self) -> None:
        """Raise if the master does not listen; waits without the interpreter lock."""
        host, _, port = self._master.rpartition(":")
        try:
            socket.create_connection((host, int(port)), LISTENS_S).close()
        except OSError as error:
            self._retry_at = time.monotonic() + RETRY_S
            raise CarrierError(f"fleet store mooncake://{self._master} cannot be reached: {error}") from None

    def _key(self, name: str) -> str:
        return PREFIX + check_name(name)

    def _fault(self, what: str, code: int) -> CarrierError:
        return CarrierError(f"fleet store mooncake://{self._master}: cannot {what} (code {code} of Mooncake Store)")


def _parse(place: str) -> tuple[str, dict[str, str]]:
    """The master's address, and the options."""
    parts = urlsplit(f"//{place}")
    options = dict(parse_qsl(parts.query))
    try:
        is_valid = bool(parts.hostname and parts.port) and options.keys() <= {"protocol", "device", "host"}
    except ValueError:  # a port that is not a number
        is_valid = False
    if not is_valid:
        raise ConfigurationError(
            f"invalid fleet store 'mooncake://{place}' (expected the address of the store's master, such as "
            "mooncake://localhost:50051, with the options protocol, device and host)"
        )
    return f"{parts.hostname}:{parts.port}", options


def _own_address(master: str) -> str:
    """The address by which this machine reaches the master; nothing is sent."""
    host, _, port = master.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
