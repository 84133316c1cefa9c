"""Token ids and a secret key in, content digests out: SipHash-2-4 of every gram of tokens."""

from __future__ import annotations

import hmac
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import HAS_COMPILER, kernel, kernel_part
from sembase.errors import ConfigurationError
from sembase.trace.content_digests import BITS, GRAM, SHIFTS, ContentDigests
from sembase.winnowing import ending_hashes

KEY_BYTES: Final = 16
PUBLIC_KEY: Final = bytes(KEY_BYTES)  # for texts at hand, whose digests are not stored
_TOP: Final = np.uint64(64 - BITS)


def digest_key(tenant_key: bytes) -> bytes:
    """The key of a tenant's content digests, from a secret key of that tenant that is used for other digests too."""
    return hmac.digest(tenant_key, b"content digests v1", "sha256")[:KEY_BYTES]


def digest_tokens(tokens: NDArray[np.integer], key: bytes) -> ContentDigests:
    """Costs about 10 ns per token compiled, 150 ns without a compiler."""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(f"the key of content digests has {len(key)} bytes, not {KEY_BYTES}")
    messages = ending_hashes(np.ascontiguousarray(tokens).astype(np.uint32), GRAM)
    if HAS_COMPILER:
        halves = np.frombuffer(key, "<u8").astype(np.uint64)
        return ContentDigests(len(messages), _packed_digests(messages, halves[0], halves[1]).tobytes())
    values = siphash(messages, key) >> _TOP
    padded = np.zeros(-(-len(values) // 4) * 4, np.uint8)
    padded[: len(values)] = values
    packed = np.bitwise_or.reduce(padded.reshape(-1, 4) << SHIFTS, axis=1)
    return ContentDigests(len(values), packed.astype(np.uint8).tobytes())


# SipHash-2-4 (Aumasson, Bernstein 2012) of one 8-byte message. Every step works on numbers and on arrays.
_STATE: Final = tuple(map(np.uint64, (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)))
_LENGTH: Final = np.uint64(8 << 56)
_END: Final = np.uint64(0xFF)
_WORD: Final = np.uint64(64)
_LEFT_13, _LEFT_16, _LEFT_17, _LEFT_21, _LEFT_32 = map(np.uint64, (13, 16, 17, 21, 32))


@kernel_part
def _rotate(value: Any, left: Any) -> Any:
    return (value << left) | (value >> (_WORD - left))


@kernel_part
def _round(a: Any, b: Any, c: Any, d: Any) -> Any:
    a = a + b
    b = _rotate(b, _LEFT_13) ^ a
    a = _rotate(a, _LEFT_32)
    c = c + d
    d = _rotate(d, _LEFT_16) ^ c
    a = a + d
    d = _rotate(d, _LEFT_21) ^ a
    c = c + b
    b = _rotate(b, _LEFT_17) ^ c
    return a, b, _rotate(c, _LEFT_32), d


@kernel_part
def _siphash(message: Any, key: Any, key_end: Any) -> Any:
    a, b, c, d = key ^ _STATE[0], key_end ^ _STATE[1], key ^ _STATE[2], key_end ^ _STATE[3]
    d = d ^ message
    for _ in range(2):
        a, b, c, d = _round(a, b, c, d)
    a = a ^ message
    d = d ^ _LENGTH
    for _ in range(2):
        a, b, c, d = _round(a, b, c, d)
    a = a ^ _LENGTH
    c = c ^ _END
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b ^ c ^ d


@kernel
def _siphash_all(messages: NDArray[np.uint64], key: np.uint64, key_end: np.uint64) -> NDArray[np.uint64]:
    hashes = np.empty(len(messages), np.uint64)
    for i in range(len(messages)):
        hashes[i] = _siphash(messages[i], key, key_end)
    return hashes


@kernel
def _packed_digests(messages: NDArray[np.uint64], key: np.uint64, key_end: np.uint64) -> NDArray[np.uint8]:
    packed = np.zeros((len(messages) + 3) // 4, np.uint8)
    for i in range(len(messages)):
        packed[i >> 2] |= np.uint8((_siphash(messages[i], key, key_end) >> _TOP) << np.uint64(BITS * (i & 3)))
    return packed


def siphash(messages: NDArray[np.uint64], key: bytes) -> NDArray[np.uint64]:
    halves = np.frombuffer(key, "<u8").astype(np.uint64)
    if HAS_COMPILER:
        return _siphash_all(messages, halves[0], halves[1])
    return np.asarray(_siphash(messages, halves[:1], halves[1:]))
