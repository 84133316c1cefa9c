"""What a replica announced, kept in the shared store, so that a restarted router knows it at once.

In: the blocks of one event stream and its position; out: the same after a restart. The router then replays what the
publisher sent since; a publisher that restarted, or no longer has these messages, empties the index as always. 18 bytes
per block. Routers take turns in writing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec
import numpy as np

from semgate.events.apply import MAX_ADAPTERS
from semgate.events.resume import StreamState
from semgate.index.keys import request_keys, root_key
from semgate.logs import log
from semgate.shared.store import SharedStore, StoreError

VERSION: Final = 1
LIFETIME_S: Final = 3_600
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
BlockTokens = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]


class _Wire(msgspec.Struct, array_like=True):
    """``scheme`` is a key of known tokens: block keys made in another way are not taken for ours."""

    version: int
    scheme: int
    next_seq: Count
    newest: bytes
    group: Count | None
    block_tokens: BlockTokens | None
    adapters: list[str]
    hashes: bytes
    keys: bytes
    copies: bytes


class Snapshots:
    def __init__(self, store: SharedStore, router: str, interval_s: float) -> None:
        self._store = store
        self._router = router
        self._interval_s = interval_s
        self._written: dict[str, int] = {}  # by stream: the position of our last snapshot
        self.saved = 0
        self.restored = 0

    async def load(self, stream: str) -> StreamState | None:
        """None if there is none, or none that can be used."""
        key = self._store.key("blocks", stream)
        try:
            sealed = await self._store.call(lambda client: client.get(key))
        except StoreError as error:
            log(logging.WARNING, "snapshot not read", why=str(error))
            return None
        if sealed is None:
            return None
        state = await asyncio.to_thread(self._decoded, key, sealed)
        if state is None:
            log(logging.WARNING, "snapshot not used: another stream, digest secret or version wrote it")
            return None
        self.restored += len(state.hashes)
        return state

    async def save(self, stream: str, take: Callable[[], StreamState | None]) -> None:
        """Writes the stream's state unless another router did within the interval. ``take`` is called on the loop."""
        lock, interval_ms = self._store.key("blocks-lock", stream), round(self._interval_s * 1e3)
        if not await self._store.call(lambda client: client.set(lock, self._router, nx=True, px=interval_ms)):
            return
        state, key = take(), self._store.key("blocks", stream)
        if state is None:
            return
        if self._written.get(stream) == state.next_seq and await self._store.call(
            lambda client: client.expire(key, LIFETIME_S)
        ):
            return
        sealed = await asyncio.to_thread(self._encoded, key, state)
        await self._store.call(lambda client: client.set(key, sealed, ex=LIFETIME_S))
        self._written[stream] = state.next_seq
        self.saved += 1

    async def run(self, streams: Callable[[], Sequence[tuple[str, Callable[[], StreamState | None]]]]) -> None:
        while True:
            for name, take in streams():
                try:
                    await self.save(name, take)
                except StoreError as error:
                    log(logging.WARNING, "snapshot not written", why=str(error))
                    break
            await asyncio.sleep(self._interval_s)

    def _encoded(self, key: str, state: StreamState) -> bytes:
        hashes, keys, copies = state.ordered()
        wire = _Wire(
            version=VERSION,
            scheme=_scheme(),
            next_seq=state.next_seq,
            newest=state.newest,
            group=state.group,
            block_tokens=state.block_tokens,
            adapters=list(state.adapters),
            hashes=hashes.astype("<u8", copy=False).tobytes(),
            keys=keys.astype("<u8", copy=False).tobytes(),
            copies=copies.astype("<u2", copy=False).tobytes(),
        )
        return self._store.seal(key, wire)

    def _decoded(self, key: str, sealed: bytes) -> StreamState | None:
        wire = self._store.unseal(key, sealed, _Wire)
        if wire is None:
            return None
        count = len(wire.hashes) // 8
        sizes = (len(wire.hashes), len(wire.keys), len(wire.copies))
        if wire.version != VERSION or wire.scheme != _scheme() or sizes != (8 * count, 8 * count, 2 * count):
            return None
        return StreamState(
            next_seq=wire.next_seq,
            newest=wire.newest,
            group=wire.group,
            block_tokens=wire.block_tokens,
            adapters=tuple(wire.adapters[:MAX_ADAPTERS]),
            hashes=np.frombuffer(wire.hashes, "<u8").astype(np.uint64),
            keys=np.frombuffer(wire.keys, "<u8").astype(np.uint64),
            copies=np.frombuffer(wire.copies, "<u2").astype(np.uint16),
        )


def _scheme() -> int:
    return int(request_keys(np.arange(16, dtype=np.uint32), 16, root_key("", "salt", "adapter"))[0])
