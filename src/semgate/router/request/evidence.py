"""The evidence for placing one request: its size, its block keys, which replicas hold them, which donors match.

In: an inspected request and its body; out: a ``PlacementRequest``. Missing evidence (no tokenizer, no events, an
unreadable body) is left out, and the request is placed by the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from semgate.fleet import Replica
from semgate.http.request_body import Asked
from semgate.http.tenant import UNKNOWN_TENANT
from semgate.index.keys import request_keys
from semgate.placement.border import evidence_or_bare
from semgate.placement.placer import Placer
from semgate.placement.view import NO_KEYS, PlacementRequest
from semgate.prompt.contents import BYTES_PER_TOKEN, MAX_ESTIMATED_TOKENS, contents_of, estimate_tokens
from semgate.router.request.inspection import run_off_loop
from semgate.router.request.token_source import TokenSource, token_samples
from semgate.router.state.known_blocks import KnownBlocks, sent_root
from semgate.router.state.known_donors import KnownDonors
from semgate.router.state.metrics import Sample


@dataclass(frozen=True, slots=True)
class EvidenceOptions:
    """``model_tokens``: the longest prompt; tokens beyond it are ignored. ``reveals_announced``: tenants may see
    what engines announced, because salts isolate tenants there or because there is only one tenant."""

    block_tokens: int
    model_tokens: int = 262_144
    reveals_announced: bool = False


class EvidenceCollector:
    """Listens to the roster: what is known of a replica is added and removed with it."""

    def __init__(
        self, placer: Placer, tokens: TokenSource, blocks: KnownBlocks, donors: KnownDonors, options: EvidenceOptions
    ) -> None:
        self._placer = placer
        self._tokens = tokens
        self.blocks = blocks
        self._donors = donors
        self._block_tokens = options.block_tokens
        self._model_tokens = options.model_tokens
        self._reveals_announced = options.reveals_announced
        needs = placer.needs
        self._reads_text = needs.text != "ignored"
        self._reads_both = needs.text == "used"
        self.reads_tokens = needs.tokens != "ignored"

    async def collect(self, asked: Asked, body: bytes) -> PlacementRequest:
        """Never fails: without evidence the request is placed by load, and its decision gives the reason."""
        bare = PlacementRequest(
            prompt_tokens=min(asked.body_bytes // BYTES_PER_TOKEN, MAX_ESTIMATED_TOKENS),
            block_tokens=self._block_tokens,
            tenant=asked.tenant or UNKNOWN_TENANT,
            session=asked.session,
        )
        return await evidence_or_bare(self._collect(asked, body, bare), bare)

    async def _collect(self, asked: Asked, body: bytes, bare: PlacementRequest) -> PlacementRequest:
        tokens = await self._tokens.tokens_of(asked, body) if self.reads_tokens else None
        began_s = time.perf_counter()
        known = bare
        if tokens is None or self._reads_both:
            known = await run_off_loop(len(body), self._without_tokens, asked, body, bare)
        if tokens is not None:
            known = self._with_tokens(asked, tokens, known)
        return replace(known, collect_us=(time.perf_counter() - began_s) * 1e6)

    def _without_tokens(self, asked: Asked, body: bytes, bare: PlacementRequest) -> PlacementRequest:
        """May run in another thread: reads the request only."""
        content = contents_of(asked, body) if self._reads_text else ()
        return replace(bare, prompt_tokens=estimate_tokens(asked), content=content)

    def _with_tokens(self, asked: Asked, tokens: NDArray[np.uint32], bare: PlacementRequest) -> PlacementRequest:
        blocks, block_tokens = self.blocks, self._block_tokens
        leading = tokens[: self._model_tokens]
        keys, claimed = NO_KEYS, None
        if asked.media_parts == 0:  # only the engine knows which tokens represent an image
            keys = request_keys(
                leading, block_tokens, sent_root(bare.tenant, asked.model, asked.cache_salt, asked.lora)
            )
        named = blocks.resolved(asked)
        if blocks.are_announced:
            root = blocks.announced_root(named)
            claimed = blocks.announced(request_keys(leading, block_tokens, root) if keys.size else NO_KEYS)
        exact = blocks.trust.believed(claimed)
        donors = self._donors.look_up(named, leading, exact, block_tokens, blocks.trust.distrusted)
        donor_tokens = None if donors is None else blocks.trust.believed(donors.tokens)
        return replace(
            bare,
            prompt_tokens=len(tokens),
            keys=keys,
            exact_blocks=exact,
            claimed_blocks=claimed if asked.reads_cache else None,
            expected_blocks=blocks.predicted(keys),
            donor_tokens=donor_tokens,
            fetchable_tokens=None if donors is None else donors.fetchable,
            own_evidence=self._reveals_announced or (exact is None and donor_tokens is None),
        )

    def note_block_size(self) -> None:
        """Called periodically: keys of a block size other than the engines' would match nothing."""
        self._block_tokens = self.blocks.announced_block_tokens() or self._block_tokens

    def samples(self, replicas: Iterable[Replica]) -> Iterable[Sample]:
        yield from self.blocks.samples(replicas)
        yield from token_samples(self._tokens)

    def sent(self, slot: int, request: PlacementRequest) -> None:
        self.blocks.sent(slot, request.keys)

    def answered(self, slot: int, request: PlacementRequest) -> None:
        self.blocks.answered(slot, request.keys)

    def reported(self, slot: int, request: PlacementRequest, cached_tokens: int) -> None:
        """What the engine found in its cache, against what was announced for it."""
        claimed = request.claimed_blocks
        if claimed is None or slot >= claimed.size or not claimed[slot]:
            return
        # An engine computes at least the last token, and whole blocks only.
        whole = (request.prompt_tokens - 1) // request.block_tokens
        announced_tokens = min(int(claimed[slot]), whole) * request.block_tokens
        if announced_tokens > 0:
            self.blocks.trust.compare(slot, request.tenant, announced_tokens, cached_tokens)

    def replica_added(self, replica: Replica) -> None:
        if self.reads_tokens:
            self.blocks.add(replica)
            self._donors.add(replica)

    def replica_removed(self, replica: Replica) -> None:
        self.blocks.remove(replica)
        self._donors.remove(replica)
        self._placer.forget(replica.slot)

    def cache_lost(self, replica: Replica) -> None:
        self.blocks.lose(replica)
        self._placer.forget(replica.slot)

    async def close(self) -> None:
        await self._tokens.close()
        await self.blocks.close()
        await self._donors.close()
