"""A directory in Valkey (or Redis): one key per anchor with the donor that has it, one per donor with its record.

Keys are raw bytes: a letter, the space, the anchor or the donor's id. Every key expires; announcing renews it. Several
servers share the keys: each key has one owner, found by arithmetic alone, and the servers do not know of each other.
Neither the servers nor those that write to them are trusted: the time and the bytes of each answer are bounded.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, MissingDependencyError
from semblend.fleet.directory.base import DirectoryError
from semblend.fleet.keys import ID_BYTES

try:
    import valkey
except ImportError:
    raise MissingDependencyError("valkey", "fleet", "a fleet directory in Valkey") from None

TIMEOUT_S: Final = 0.2  # of one answer; a directory that takes longer is worth less than the wait
REST_S: Final = 1.0  # that a server which failed is not asked
LIFETIME_S: Final = 24 * 3600
MAX_KEYS: Final = 512  # per command: a long one would delay the server's other clients
MAX_RECORD_BYTES: Final = 4 << 20
MAX_ANSWER_BYTES: Final = 33 << 20  # eight records

T = TypeVar("T")
Words = NDArray[np.uint64]


class ValkeyDirectory:
    """One connection pool per server and process; the first call connects. ``url``: one, or several with commas.

    A server that fails takes its part of the entries with it and nothing else. ``DirectoryError`` is raised when no
    server answers.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        urls = [each.strip() for each in url.split(",")]
        self._partitions = [_Partition(each, timeout_s) for each in urls]
        if len({each.name for each in self._partitions}) < len(urls):
            raise ConfigurationError(f"fleet directory '{url}': a server is named twice")
        self._seeds = np.array([each.seed for each in self._partitions], np.uint64)
        self._threads = ThreadPoolExecutor(len(urls), "semblend-directory") if len(urls) > 1 else None

    def look_up(self, space: bytes, anchors: Words) -> list[str | None]:
        found = self._each(anchors, [_anchor_key(space, anchor) for anchor in _wire(anchors)], _get, None)
        return [raw.hex() if raw is not None and len(raw) == ID_BYTES else None for raw in found]

    def records(self, space: bytes, donor_ids: Sequence[str]) -> list[bytes | None]:
        keys = [_record_key(space, donor_id) for donor_id in donor_ids]
        return self._each(_words(donor_ids), keys, _get_records, None)

    def announce(self, space: bytes, donor_id: str, record: bytes, anchors: Words) -> None:
        raw = bytes.fromhex(donor_id)

        def add(client: Any, keys: Sequence[bytes]) -> list[None]:
            return _piped(client, keys, lambda pipeline, key: pipeline.set(key, raw, ex=LIFETIME_S))

        # The record comes first: an anchor never leads to a donor whose record was not written yet.
        key = _record_key(space, donor_id)
        self._owner(donor_id).call(lambda client: client.set(key, record, ex=LIFETIME_S))
        self._each(anchors, [_anchor_key(space, anchor) for anchor in _wire(anchors)], add, None)

    def withdraw(self, space: bytes, donor_id: str) -> None:
        self._owner(donor_id).call(lambda client: client.delete(_record_key(space, donor_id)))

    def _owner(self, donor_id: str) -> _Partition:
        return self._partitions[int(owners_of(_words([donor_id]), self._seeds)[0])]

    def _each(
        self, words: Words, keys: Sequence[bytes], ask: Callable[[Any, Sequence[bytes]], list[T]], absent: T
    ) -> list[T]:
        """What the owner of each key answers, all asked at the same time; ``absent`` where the owner does not."""
        owners = owners_of(words, self._seeds)
        places = [np.flatnonzero(owners == number).tolist() for number in range(len(self._partitions))]
        asked = [(partition, own) for partition, own in zip(self._partitions, places, strict=True) if own]

        def answer(partition: _Partition, own: list[int]) -> list[T] | DirectoryError:
            try:
                return partition.call(lambda client: ask(client, [keys[place] for place in own]))
            except DirectoryError as error:
                return error

        run = map if self._threads is None or len(asked) < 2 else self._threads.map
        answers = list(run(answer, *zip(*asked, strict=True))) if asked else []
        errors = [each for each in answers if isinstance(each, DirectoryError)]
        others = [partition for partition, own in zip(self._partitions, places, strict=True) if not own]
        if errors and len(errors) == len(asked) and all(partition.is_resting() for partition in others):
            raise errors[0]
        found = [absent] * len(keys)
        for (_, own), values in zip(asked, answers, strict=True):
            if not isinstance(values, DirectoryError):
                for place, value in zip(own, values, strict=True):
                    found[place] = value
        return found


class _Partition:
    """One server. ``seed`` follows from its address without a password, so it is the same on every replica."""

    def __init__(self, url: str, timeout_s: float) -> None:
        try:
            self._client: Any = valkey.Valkey.from_url(url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
        except ValueError as error:
            raise ConfigurationError(f"fleet directory '{url}': {error}") from None
        pool = self._client.connection_pool
        pool.connection_class = type("BoundedConnection", (_BoundedAnswers, pool.connection_class), {})
        parts = urlsplit(url)
        self.name = parts.netloc.rpartition("@")[2] + parts.path
        self.seed = int.from_bytes(hashlib.blake2b(self.name.encode(), digest_size=8).digest(), "little")
        self._rests_until = 0.0

    def is_resting(self) -> bool:
        return time.monotonic() < self._rests_until

    def call(self, ask: Callable[[Any], T]) -> T:
        if self.is_resting():
            raise DirectoryError(f"fleet directory: {self.name} failed a moment ago")
        try:
            return ask(self._client)
        except (valkey.ValkeyError, OSError) as error:
            self._rests_until = time.monotonic() + REST_S
            raise DirectoryError(f"fleet directory: {error}") from None


class _BoundedAnswers:
    """Mixed into a class of connections: TCP, TLS or a local socket."""

    socket_timeout: float

    def _connect(self) -> _BoundedSocket:
        return _BoundedSocket(super()._connect(), self.socket_timeout)  # type: ignore[misc]


class _BoundedSocket:
    """A connected socket whose every request begins a new answer of at most ``timeout_s`` and ``MAX_ANSWER_BYTES``.

    The client's own time limit is of each read, and it stores whatever length the server announces.
    """

    def __init__(self, connected: socket.socket, timeout_s: float) -> None:
        self._socket = connected
        self._timeout_s = timeout_s
        self._ends_s = 0.0
        self._left_bytes = MAX_ANSWER_BYTES

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def sendall(self, data: bytes) -> None:
        self._ends_s = time.monotonic() + self._timeout_s
        self._left_bytes = MAX_ANSWER_BYTES
        self._socket.settimeout(self._timeout_s)  # the last answer left less
        self._socket.sendall(data)

    def recv(self, max_bytes: int) -> bytes:
        self._limit_time()
        return self._counted(received := self._socket.recv(max_bytes), len(received))

    def recv_into(self, buffer: bytearray) -> int:
        self._limit_time()
        return self._counted(received := self._socket.recv_into(buffer), received)

    def _limit_time(self) -> None:
        if self._socket.gettimeout() != 0.0:  # 0: a look at an idle connection
            left_s = self._ends_s - time.monotonic()
            if left_s <= 0.0:
                raise TimeoutError("the answer takes too long")
            self._socket.settimeout(left_s)

    def _counted(self, received: T, size_bytes: int) -> T:
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise OSError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        return received


def owners_of(words: Words, seeds: Words) -> NDArray[np.intp]:
    """The number of the server that owns each word: the highest of one hash per server, so that a server that is added
    takes over its own part and moves nothing else. Costs one pass over words times servers.
    """
    if len(seeds) == 1:
        return np.zeros(len(words), np.intp)
    mixed = (words[None, :] ^ seeds[:, None]) * np.uint64(0x9E37_79B9_7F4A_7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8_FEB8_6659_FD93)
    owners: NDArray[np.intp] = (mixed ^ (mixed >> np.uint64(32))).argmax(axis=0)
    return owners


def _words(donor_ids: Sequence[str]) -> Words:
    return np.array([int(donor_id[:16], 16) for donor_id in donor_ids], np.uint64)


def _get(client: Any, keys: Sequence[bytes]) -> list[bytes | None]:
    return [value for part in _parts(keys) for value in client.mget(part)]


def _get_records(client: Any, keys: Sequence[bytes]) -> list[bytes | None]:
    """No more is downloaded of a value than shows that it is too large."""
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.getrange(key, 0, MAX_RECORD_BYTES)
    found = pipeline.execute(raise_on_error=False)  # of a value that is not text
    return [raw if isinstance(raw, bytes) and 0 < len(raw) <= MAX_RECORD_BYTES else None for raw in found]


def _piped(client: Any, keys: Sequence[bytes], add: Callable[[Any, bytes], object]) -> list[Any]:
    answers: list[Any] = []
    for part in _parts(keys):
        pipeline = client.pipeline(transaction=False)
        for key in part:
            add(pipeline, key)
        answers += pipeline.execute()
    return answers


def _wire(anchors: NDArray[np.uint64]) -> list[bytes]:
    raw = anchors.astype("<u8").tobytes()
    return [raw[at : at + 8] for at in range(0, len(raw), 8)]


def _anchor_key(space: bytes, anchor: bytes) -> bytes:
    return b"a" + space + anchor


def _record_key(space: bytes, donor_id: str) -> bytes:
    return b"d" + space + bytes.fromhex(donor_id)


def _parts(keys: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(keys), MAX_KEYS):
        yield keys[at : at + MAX_KEYS]
