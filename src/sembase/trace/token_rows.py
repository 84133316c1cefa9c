"""The tokens of a request as one row, and their content digests: what ``reuse_counter`` counts.

A row is the tokens of its blocks, one block after the other, each tokenized on its own: as many as the blocks' token
counts say. Tokens that are not known (a redacted block, a picture, an id of a hash trace) become made-up ids that are
equal only in equal blocks, so that such a block is found as a whole or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ContractError
from sembase.tokenizer import Tokenizer, open_tokenizer
from sembase.trace.build import content_key
from sembase.trace.content_digests import ContentDigests
from sembase.trace.digest_tokens import PUBLIC_KEY, digest_tokens
from sembase.trace.record import TraceBlock, TraceRecord

CACHED_TOKENS: Final = 1 << 23  # of block texts, 4 bytes each; least recently used evicted
MAX_PROMPT_TOKENS: Final = 1 << 26
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)


class TokenRows:
    """Remembers the tokens of recent texts, because a block returns with every turn of its session."""

    def __init__(self, tokenizer: Tokenizer | None = None, *, cached_tokens: int = CACHED_TOKENS) -> None:
        self.tokenizer = tokenizer or open_tokenizer(None)
        self._most = cached_tokens
        self._cached: dict[str, NDArray[np.uint32]] = {}
        self._held = 0

    def of_text(self, identity: str, text: str) -> NDArray[np.uint32]:
        """``identity`` is equal for equal texts only. Never empty: a text without tokens is one unknown token."""
        row = self._cached.pop(identity, None)
        if row is None:
            row = self.tokenizer.ids(text).astype(np.uint32)
            row = row if len(row) else unknown_tokens(identity, 1)
            self._held += len(row)
        self._cached[identity] = row
        while self._held > self._most:
            self._held -= len(self._cached.pop(next(iter(self._cached))))
        return row

    def of_block(self, block: TraceBlock) -> NDArray[np.uint32]:
        identity, tokens = content_key(block)
        return unknown_tokens(identity, tokens) if block.text is None else self.of_text(identity, block.text)

    def of_record(self, record: TraceRecord) -> NDArray[np.uint32]:
        if record.prompt_tokens > MAX_PROMPT_TOKENS:
            raise ContractError(
                f"request {record.request_id}: {record.prompt_tokens} prompt tokens exceed the maximum of "
                f"{MAX_PROMPT_TOKENS}"
            )
        if any(block.text is not None for block in record.blocks):
            return np.concatenate([self.of_block(block) for block in record.blocks])
        return unknown_rows([content_key(block) for block in record.blocks])

    def digests_of(self, record: TraceRecord) -> ContentDigests:
        """The digests in the record; without them, digests of its tokens under a public key, not to be stored."""
        return record.content_digests or digest_tokens(self.of_record(record), PUBLIC_KEY)


def unknown_tokens(identity: str, tokens: int) -> NDArray[np.uint32]:
    """Ids that depend on the identity, the position and the number of tokens."""
    return unknown_rows([(identity, tokens)])


def unknown_rows(blocks: Sequence[tuple[str, int]]) -> NDArray[np.uint32]:
    """``unknown_tokens`` of one block after the other, as one row."""
    starts = np.array([_start_of(identity, tokens) for identity, tokens in blocks], np.uint64)
    counts = np.array([tokens for _, tokens in blocks], np.int64)
    ends = np.cumsum(counts)
    positions = np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(ends - counts, counts)
    return ((np.repeat(starts, counts) + positions.astype(np.uint64) * _SPREAD) >> _HALF).astype(np.uint32)


def _start_of(identity: str, tokens: int) -> int:
    digest = hashlib.blake2b(f"{tokens} {identity}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
