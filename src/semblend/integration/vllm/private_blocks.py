"""Keeps blended KV out of the engine's exact cache: a request's block hashes become private from the claim on.

The engine caches a block under its hash as soon as it is full, and queues an event about it. A private hash chains into
every later block of the request, so no other request can match one; queued events about them are removed.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, cast

from vllm.distributed.kv_events import BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

if TYPE_CHECKING:
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_utils import BlockHash
    from vllm.v1.request import Request


class PrivateBlocks:
    """The private blocks of each blended request that is still alive."""

    def __init__(self, hash_tokens: int) -> None:
        self._hash_tokens = hash_tokens
        self._first: dict[str, int] = {}
        self._public: dict[str, list[BlockHash]] = {}
        self._requests: dict[str, Request] = {}
        self._numbers: list[bytes] = []  # of the blocks of the longest prompt so far

    def __len__(self) -> int:
        return len(self._first)

    def can_claim(self, request: Request, boundary: int) -> bool:
        """Whether a full block follows the boundary: without one, later blocks would chain from a public hash."""
        return len(request.block_hashes) > boundary // self._hash_tokens

    def claim(self, request: Request, boundary: int) -> None:
        """Make every hash from ``boundary`` on private. Repeating it is harmless."""
        self.restore(request)
        first = boundary // self._hash_tokens
        public = request.block_hashes[first:]
        self._numbers += [n.to_bytes(8, "big") for n in range(len(self._numbers), len(public))]
        secret = secrets.token_bytes(24)  # 32 bytes with the number: as long as the engine's own
        private = [secret + number for number in self._numbers[: len(public)]]
        request.block_hashes[first:] = cast("list[BlockHash]", private)
        self._first[request.request_id] = first
        self._public[request.request_id] = public
        self._requests[request.request_id] = request

    def restore(self, request: Request) -> None:
        """Undo a claim of which nothing was loaded, and of which no block was cached."""
        first = self._first.get(request.request_id)
        public = self._public.get(request.request_id)
        owner = self._requests.get(request.request_id)
        self.forget(request.request_id)
        if first is None or public is None or owner is not request:
            return
        request.block_hashes[first:] = public
        request.update_block_hashes()  # blocks filled since then chain from the public ones again

    def holds(self, request_id: str) -> bool:
        return request_id in self._first

    def boundary(self, request_id: str) -> int:
        """The token position from which the request's hashes are private."""
        return self._first[request_id] * self._hash_tokens

    def uncache(self, request: Request, pool: BlockPool | None) -> None:
        """Take every block under a private hash of this request out of the cache, wherever the block is now."""
        first = self._first.get(request.request_id)
        if first is None or pool is None:
            return
        found = [pool.get_cached_block(block_hash, [0]) for block_hash in request.block_hashes[first:]]
        pool.evict_blocks({block.block_id for blocks in found if blocks for block in blocks})
        self.silence(pool)

    def release(self, request: Request, pool: BlockPool | None) -> None:
        """The request is finished: its private blocks leave the cache, where no request could match them.

        Its hashes are public again, for those of its blocks that a repair makes exact.
        """
        self.uncache(request, pool)
        self.restore(request)

    def forget(self, request_id: str) -> None:
        for known in (self._first, self._public, self._requests):
            known.pop(request_id, None)

    def silence(self, pool: BlockPool) -> None:
        """Take announcements of private blocks out of the engine's event queue."""
        if not self._first or not pool.kv_event_queue:
            return
        private = {
            maybe_convert_block_hash(block_hash)
            for request_id, request in self._requests.items()
            for block_hash in request.block_hashes[self._first[request_id] :]
        }
        kept = [
            event
            for event in pool.kv_event_queue
            if not (isinstance(event, BlockStored | BlockRemoved) and not private.isdisjoint(event.block_hashes))
        ]
        pool.kv_event_queue[:] = kept
