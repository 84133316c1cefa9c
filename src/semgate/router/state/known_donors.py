"""Donors announced by the engines' connectors: how many tokens of a request each replica could reuse.

In: replicas that are added and removed, token ids; out: tokens by the fleet's slot. Bounded by the donor index.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sembase.zmq_curve import CurveClient
from semblend.donors.index import DonorIndex, Usable
from semblend.donors.sink import DonorSink
from semblend.donors.zmq_feed import DonorFeed
from semgate.fleet import Replica
from semgate.http.request_body import Asked
from semgate.placement.view import BySlot


class KnownDonors:
    """Without a key no replica is followed: announcements could not be read."""

    def __init__(self, key: bytes | None, curve: CurveClient | None = None) -> None:
        self._index: DonorIndex | None = None
        self._feed: DonorFeed[DonorSink] | None = None
        self._followed: set[int] = set()
        if key is not None:
            self._index = DonorIndex(key)
            self._feed = DonorFeed(partial(DonorSink, self._index), self._index.forget, curve=curve)

    def add(self, replica: Replica) -> None:
        address = replica.endpoint.donors
        if address is not None and self._feed is not None:
            self._feed.follow(replica.slot, address)
            self._followed.add(replica.slot)

    def remove(self, replica: Replica) -> None:
        if self._feed is not None and replica.slot in self._followed:
            self._followed.discard(replica.slot)
            self._feed.leave(replica.slot)

    def look_up(
        self,
        asked: Asked,
        tokens: NDArray[np.uint32],
        exact: BySlot | None,
        block_tokens: int,
        distrusted: Collection[int] = (),
    ) -> Usable | None:
        """Tokens beyond its exact prefix; None if no replica announces donors.

        ``asked`` with its adapter as ``KnownBlocks.resolved`` gives it: donors are announced under the adapter's name.
        ``distrusted``: slots whose donors others cannot be expected to fetch.
        """
        if self._index is None or not self._followed:
            return None
        held = np.zeros(max(self._followed) + 1, np.int32)
        if exact is not None:
            shared = min(held.size, exact.size)
            held[:shared] = exact[:shared] * block_tokens
        return self._index.usable(tokens, asked.cache_salt, asked.lora, held, distrusted)

    async def close(self) -> None:
        if self._feed is not None:
            await self._feed.close()
