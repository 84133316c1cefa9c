"""A directory in Valkey (or Redis): one key per anchor with the donor that has it, one per donor with its record.
One more per mark of content that was seen.

Keys are raw bytes: a letter, the space, the anchor or the donor's id. Every key expires; announcing renews it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, MissingDependencyError
from semblend.fleet.directory.base import DirectoryError
from semblend.fleet.keys import ID_BYTES

try:
    import valkey
except ImportError:
    raise MissingDependencyError("valkey", "fleet", "a fleet directory in Valkey") from None

TIMEOUT_S: Final = 0.2  # of one call; a directory that takes longer is worth less than the wait
LIFETIME_S: Final = 24 * 3600
MARK_LIFETIME_S: Final = 3600
MAX_KEYS: Final = 512  # per command: a long one would delay the server's other clients
MAX_RECORD_BYTES: Final = 4 << 20

T = TypeVar("T")


class ValkeyDirectory:
    """One connection pool per process; the first call connects."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        try:
            self._client: Any = valkey.Valkey.from_url(url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
        except ValueError as error:
            raise ConfigurationError(f"fleet directory '{url}': {error}") from None

    def look_up(self, space: bytes, anchors: NDArray[np.uint64]) -> list[str | None]:
        found = self._get([_anchor_key(space, anchor) for anchor in _wire(anchors)])
        return [raw.hex() if raw is not None and len(raw) == ID_BYTES else None for raw in found]

    def records(self, space: bytes, donor_ids: Sequence[str]) -> list[bytes | None]:
        found = self._get([_record_key(space, donor_id) for donor_id in donor_ids])
        return [raw if raw is not None and len(raw) <= MAX_RECORD_BYTES else None for raw in found]

    def announce(self, space: bytes, donor_id: str, record: bytes, anchors: NDArray[np.uint64]) -> None:
        raw = bytes.fromhex(donor_id)
        with self._reported():
            # The record comes first: an anchor never leads to a donor whose record was not written yet.
            self._client.set(_record_key(space, donor_id), record, ex=LIFETIME_S)
            for keys in _parts([_anchor_key(space, anchor) for anchor in _wire(anchors)]):
                pipeline = self._client.pipeline(transaction=False)
                for key in keys:
                    pipeline.set(key, raw, ex=LIFETIME_S)
                pipeline.execute()

    def withdraw(self, space: bytes, donor_id: str) -> None:
        with self._reported():
            self._client.delete(_record_key(space, donor_id))

    def mark(self, space: bytes, anchors: NDArray[np.uint64]) -> list[bool]:
        were: list[bool] = []
        with self._reported():
            for keys in _parts([_mark_key(space, anchor) for anchor in _wire(anchors)]):
                pipeline = self._client.pipeline(transaction=False)
                for key in keys:
                    pipeline.set(key, b"", ex=MARK_LIFETIME_S, get=True)
                were += [value is not None for value in pipeline.execute()]
        return were

    def _get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._reported():
            return [value for part in _parts(keys) for value in self._client.mget(part)]

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (valkey.ValkeyError, OSError) as error:
            raise DirectoryError(f"fleet directory: {error}") from None


def _wire(anchors: NDArray[np.uint64]) -> list[bytes]:
    raw = anchors.astype("<u8").tobytes()
    return [raw[at : at + 8] for at in range(0, len(raw), 8)]


def _anchor_key(space: bytes, anchor: bytes) -> bytes:
    return b"a" + space + anchor


def _mark_key(space: bytes, anchor: bytes) -> bytes:
    return b"m" + space + anchor


def _record_key(space: bytes, donor_id: str) -> bytes:
    return b"d" + space + bytes.fromhex(donor_id)


def _parts(keys: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(keys), MAX_KEYS):
        yield keys[at : at + MAX_KEYS]
