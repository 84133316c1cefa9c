"""What is known of one request before it is placed: its size, its block keys, who holds them, which donors fit.

In: the look at a request's body; out: a ``PlacementRequest``. Whatever cannot be had (no tokenizer, no events, a body
nobody can read) is left out, and the request is placed by what is there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semgate.fleet import Replica
from semgate.http.request_body import Asked
from semgate.http.tenant import UNKNOWN_TENANT
from semgate.index.keys import request_keys
from semgate.placement.placer import Placer
from semgate.placement.view import NO_KEYS, PlacementRequest
from semgate.router.contents import BYTES_PER_TOKEN, contents_of
from semgate.router.known_blocks import KnownBlocks
from semgate.router.known_donors import KnownDonors
from semgate.router.metrics import Sample
from semgate.router.token_source import TokenSource, token_samples

# Policies of ours that would throw this evidence away; one of somebody else may read anything.
IGNORES_TEXT: Final = frozenset({"round_robin", "least_loaded", "precise_prefix", "semantic_placement"})
IGNORES_TOKENS: Final = frozenset({"round_robin", "least_loaded", "semantic_locality"})


class Evidence:
    """Listens to the roster, so that what is known of a replica comes and goes with it."""

    def __init__(
        self, placer: Placer, tokens: TokenSource, blocks: KnownBlocks, donors: KnownDonors, block_tokens: int
    ) -> None:
        self._placer = placer
        self._tokens = tokens
        self._blocks = blocks
        self._donors = donors
        self._block_tokens = block_tokens
        self._reads_text = placer.policy not in IGNORES_TEXT
        self.reads_tokens = placer.policy not in IGNORES_TOKENS

    async def gather(self, asked: Asked, body: bytes) -> PlacementRequest:
        tokens = await self._tokens.tokens_of(asked, body) if self.reads_tokens else None
        began_s = time.perf_counter()
        content = contents_of(asked, body) if self._reads_text and tokens is None else ()
        if tokens is None:
            return PlacementRequest(
                prompt_tokens=sum(each.tokens for each in content) or asked.body_bytes // BYTES_PER_TOKEN,
                block_tokens=self._block_tokens,
                content=content,
                tenant=asked.tenant or UNKNOWN_TENANT,
                session=asked.session,
                gathered_us=(time.perf_counter() - began_s) * 1e6,
            )
        return self._with_tokens(asked, tokens, began_s)

    def _with_tokens(self, asked: Asked, tokens: NDArray[np.uint32], began_s: float) -> PlacementRequest:
        keys = NO_KEYS
        if asked.media_parts == 0:  # an image stands among the tokens as something only the engine knows
            keys = request_keys(tokens, self._block_tokens, self._blocks.root(asked.model, asked.cache_salt))
        exact, expected = self._blocks.look_up(keys)
        donor_tokens = self._donors.look_up(asked, tokens, exact, self._block_tokens)
        return PlacementRequest(
            prompt_tokens=len(tokens),
            block_tokens=self._block_tokens,
            keys=keys,
            exact_blocks=exact,
            expected_blocks=expected,
            donor_tokens=donor_tokens,
            tenant=asked.tenant or UNKNOWN_TENANT,
            session=asked.session,
            gathered_us=(time.perf_counter() - began_s) * 1e6,
        )

    def note_block_size(self) -> None:
        """From time to time: keys of another block size than the engines' would meet nothing."""
        self._block_tokens = self._blocks.announced_block_tokens() or self._block_tokens

    def samples(self, replicas: Iterable[Replica]) -> Iterable[Sample]:
        yield from self._blocks.samples(replicas)
        yield from token_samples(self._tokens)

    def sent(self, slot: int, request: PlacementRequest) -> None:
        self._blocks.sent(slot, request.keys)

    def replica_added(self, replica: Replica) -> None:
        if self.reads_tokens:
            self._blocks.add(replica)
            self._donors.add(replica)

    def replica_removed(self, replica: Replica) -> None:
        self._blocks.remove(replica)
        self._donors.remove(replica)
        self._placer.forget(replica.slot)

    def cache_lost(self, replica: Replica) -> None:
        self._blocks.lose(replica)
        self._placer.forget(replica.slot)

    async def close(self) -> None:
        await self._tokens.close()
        await self._blocks.close()
        await self._donors.close()
