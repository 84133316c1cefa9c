"""Block keys of a request: token ids and a namespace in, one chained 64-bit key per full block out.

A key is SipHash-1-3 of (key of the block before, tokens of the block) under a secret of this process, or the common
one of routers that share snapshots (``use_secret``), and the first block chains from the namespace: a client cannot
construct a collision, and equal texts of two salts never share a key. A collision sends a request to a replica that
holds less than expected; it never causes reuse. 256 blocks of 16 tokens take about 10 us.
"""

from __future__ import annotations

import hashlib
import secrets
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part

SECRET_BYTES: Final = 16


_INIT_0: Final = np.uint64(0x736F6D6570736575)
_INIT_1: Final = np.uint64(0x646F72616E646F6D)
_INIT_2: Final = np.uint64(0x6C7967656E657261)
_INIT_3: Final = np.uint64(0x7465646279746573)
_END: Final = np.uint64(0xFF)
_ZERO: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_13: Final = np.uint64(13)
_16: Final = np.uint64(16)
_17: Final = np.uint64(17)
_21: Final = np.uint64(21)
_32: Final = np.uint64(32)
_43: Final = np.uint64(43)
_47: Final = np.uint64(47)
_48: Final = np.uint64(48)
_51: Final = np.uint64(51)


class _Secret:
    """One per process: every index and every request must be keyed alike."""

    def __init__(self, raw: bytes) -> None:
        self.set(raw)

    def set(self, raw: bytes) -> None:
        self.raw = raw
        self.low = np.uint64(int.from_bytes(raw[:8], "little"))
        self.high = np.uint64(int.from_bytes(raw[8:], "little"))


SECRET: Final = _Secret(secrets.token_bytes(SECRET_BYTES))


def use_secret(secret: bytes) -> None:
    """Keys as in other processes with the same secret. Before anything is keyed: what was, is not found any more."""
    SECRET.set(hashlib.blake2b(secret, digest_size=SECRET_BYTES, person=b"semgate-blocks").digest())
    known_root_key.cache_clear()


def root_key(model: str, salt: str | None, lora: str | None) -> int:
    """The key that the first block of a namespace chains from. ``None`` and ``""`` are different salts."""
    digest = hashlib.blake2b(key=SECRET.raw, digest_size=8, person=b"semgate-root")
    for part in (model, salt, lora):
        raw = b"" if part is None else b"=" + part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return int.from_bytes(digest.digest(), "little")


known_root_key: Final = lru_cache(maxsize=4096)(root_key)  # for the few namespaces of an engine's events


def extra_key(content: bytes) -> int:
    """What a block holds besides its tokens (an image, an adapter), as a number for ``extras``; never 0."""
    digest = hashlib.blake2b(content, key=SECRET.raw, digest_size=8, person=b"semgate-extra").digest()
    return int.from_bytes(digest, "little") or 1


def request_keys(
    tokens: NDArray[np.uint32], block_tokens: int, root: int, extras: NDArray[np.uint64] | None = None
) -> NDArray[np.uint64]:
    """One key per full block. ``extras[i]`` (0: nothing) is mixed into block ``i`` and so into all after it."""
    count = len(tokens) // block_tokens
    mixed = np.zeros(count, np.uint64) if extras is None else extras
    keys = np.empty(count, np.uint64)
    with np.errstate(over="ignore"):  # without the compiler, wrapping on purpose would warn
        chain_keys(tokens, block_tokens, np.uint64(root), mixed, SECRET.low, SECRET.high, keys)
    return keys


@kernel
def chain_keys(
    tokens: NDArray[np.uint32],
    block_tokens: int,
    root: np.uint64,
    extras: NDArray[np.uint64],
    low: np.uint64,
    high: np.uint64,
    keys: NDArray[np.uint64],
) -> None:
    key = root
    for block in range(len(keys)):
        key = block_key(tokens, block * block_tokens, block_tokens, key, extras[block], low, high)
        keys[block] = key


@kernel_part
def block_key(
    tokens: NDArray[np.uint32],
    begin: int,
    count: int,
    parent: np.uint64,
    extra: np.uint64,
    low: np.uint64,
    high: np.uint64,
) -> np.uint64:
    """SipHash-1-3 over parent, extra and token pairs; never 0, which marks a free place in the tables."""
    a, b, c, d = low ^ _INIT_0, high ^ _INIT_1, low ^ _INIT_2, high ^ _INIT_3
    a, b, c, d = _absorb(a, b, c, d, parent)
    a, b, c, d = _absorb(a, b, c, d, extra)
    place, end = begin, begin + count
    while place + 1 < end:
        a, b, c, d = _absorb(a, b, c, d, np.uint64(tokens[place]) | (np.uint64(tokens[place + 1]) << _32))
        place += 2
    last = np.uint64(tokens[place]) if place < end else _ZERO
    a, b, c, d = _absorb(a, b, c, d, last | (np.uint64(count) << _48))
    c ^= _END
    for _ in range(3):
        a, b, c, d = _mix(a, b, c, d)
    key = a ^ b ^ c ^ d
    return key if key != _ZERO else _ONE


@kernel_part
def _absorb(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, word: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    a, b, c, d = _mix(a, b, c, d ^ word)
    return a ^ word, b, c, d


@kernel_part
def _mix(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    a += b
    b = ((b << _13) | (b >> _51)) ^ a
    a = (a << _32) | (a >> _32)
    c += d
    d = ((d << _16) | (d >> _48)) ^ c
    a += d
    d = ((d << _21) | (d >> _43)) ^ a
    c += b
    b = ((b << _17) | (b >> _47)) ^ c
    c = (c << _32) | (c >> _32)
    return a, b, c, d
