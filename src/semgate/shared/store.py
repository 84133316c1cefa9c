"""The store that several routers share: Valkey (or Redis). Calls in, answers out; a store that is gone is a value.

Routers work without it, each by itself; nothing on the path of a request waits for it. It holds no text: block hashes,
digests of sessions, names of replicas and tenants, counts. A process that writes to it could misplace requests, so
values are sealed, each for its key, with the routers' common digest secret. The names of drained replicas are not.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from sembase.errors import ConfigurationError, MissingDependencyError

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
SEAL_BYTES: Final = 32
TIMEOUT_S: Final = 5.0  # of one call; a snapshot of a million blocks is 18 MB


class StoreError(Exception):
    """The store did not answer, or refused."""


class SharedStore:
    """``space``: the fleet's name, so that several can share one server."""

    def __init__(self, url: str, space: str, secret: bytes, timeout_s: float = TIMEOUT_S) -> None:
        try:
            from valkey import asyncio as valkey_asyncio  # noqa: PLC0415  (only where routers share state)
            from valkey.exceptions import ValkeyError  # noqa: PLC0415
        except ImportError:
            raise MissingDependencyError("valkey", "shared", "state shared between routers") from None
        try:
            self.client: Any = valkey_asyncio.Valkey.from_url(
                url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
            )
        except ValueError as error:
            raise ConfigurationError(f"--shared-state-url: {error}") from None
        self._faults = (ValkeyError, OSError, TimeoutError)
        self._space = space
        self._key = hashlib.blake2b(secret, digest_size=32, person=b"semgate.shared").digest()
        self.failures = 0
        self.refused = 0  # values that were not sealed with our secret for the key they were found under
        self.is_up = False

    def key(self, *parts: str) -> str:
        return ":".join(("semgate", self._space, *parts))

    async def call(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """``work`` with the client. Raises ``StoreError``."""
        try:
            found = await work(self.client)
        except self._faults as error:
            self.failures += 1
            self.is_up = False
            raise StoreError(type(error).__name__) from None
        self.is_up = True
        return found

    def seal(self, key: str, value: msgspec.Struct) -> bytes:
        blob = msgspec.msgpack.encode(value)
        return self._digest(key, blob) + blob

    def unseal(self, key: str, sealed: bytes, kind: type[S]) -> S | None:
        """None, counted, if it was not sealed with our secret for this key, or is not a ``kind`` within its bounds."""
        blob = sealed[SEAL_BYTES:]
        if hmac.compare_digest(sealed[:SEAL_BYTES], self._digest(key, blob)):
            try:
                return msgspec.msgpack.decode(blob, type=kind)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                pass  # another version wrote it
        self.refused += 1
        return None

    def _digest(self, key: str, blob: bytes) -> bytes:
        name = key.encode()
        digest = hashlib.blake2b(len(name).to_bytes(8, "big") + name, key=self._key, digest_size=SEAL_BYTES)
        digest.update(blob)
        return digest.digest()

    async def close(self) -> None:
        try:
            await self.client.aclose()
        except self._faults:
            return
