"""Content digests of a prompt: two keyed bits per token, enough to count repeats at any position without the text.

The digest at a token is the top two bits of SipHash-2-4 of the ``GRAM`` (16) tokens that end there, under a 128-bit key
of the tenant; the first tokens of a prompt have shorter grams that begin with it. A run of at least ``GUARANTEE`` (64)
equal tokens has 49 equal digests (98 bits) in a row whatever precedes it. ``reuse_counter`` finds it.

In a record: base64 of a version byte, the token count (4 bytes), four digests per byte and a 4-byte checksum. That is
0.25 bytes per token and 9 per request, and 4/3 of it in base64. Without the key a guessed text cannot be tested; with
it, a guess costs one pass over its tokens. ``digest_tokens`` computes them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ContractError

GRAM: Final = 16  # tokens under one digest
GUARANTEE: Final = 64  # equal tokens that are always found
BITS: Final = 2

_VERSION: Final = 1
_HEAD_BYTES: Final = 5
_CHECKSUM_BYTES: Final = 4
SHIFTS: Final = np.arange(0, 8, BITS, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class ContentDigests:
    """``packed`` contains four digests per byte, the first in the low bits; unused bits are zero."""

    token_count: int
    packed: bytes

    def encode(self) -> str:
        body = bytes([_VERSION]) + self.token_count.to_bytes(4, "little") + self.packed
        return base64.b64encode(body + _checksum(body)).decode()

    def words(self) -> NDArray[np.uint64]:
        """32 digests per word, the first in the low bits, padded with zeros."""
        padded = self.packed + bytes(-len(self.packed) % 8)
        return np.frombuffer(padded, "<u8").astype(np.uint64)

    def values(self) -> NDArray[np.uint8]:
        """One digest (0 to 3) per token."""
        spread = (np.frombuffer(self.packed, np.uint8)[:, None] >> SHIFTS) & np.uint8(3)
        return np.asarray(spread.reshape(-1)[: self.token_count], np.uint8)


def decode_digests(text: str, where: str) -> ContentDigests:
    """Refuses digests that are not whole: they would silently count less reuse."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ContractError(f"{where}: 'content_digests' is damaged: not base64") from None
    body, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    if len(body) < _HEAD_BYTES or _checksum(body) != checksum:
        raise ContractError(f"{where}: 'content_digests' is damaged: its checksum does not match")
    if body[0] != _VERSION:
        raise ContractError(f"{where}: 'content_digests' has version {body[0]}; this release reads version {_VERSION}")
    tokens = int.from_bytes(body[1:_HEAD_BYTES], "little")
    if len(body) - _HEAD_BYTES != -(-tokens * BITS // 8):
        raise ContractError(f"{where}: 'content_digests' is damaged: its length is not that of {tokens} tokens")
    return ContentDigests(tokens, body[_HEAD_BYTES:])


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES).digest()
