"""The same chains and requests for every index: sessions of 4,096 tokens over 16 replicas, a quarter of them on two.

Needs numpy alone, since Dynamo's interpreter imports it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS = 16
CHAIN_BLOCKS = 256
EVENT_BLOCKS = 64
CHAIN_TOKENS = BLOCK_TOKENS * CHAIN_BLOCKS
VOCABULARY = 128_000
WARM_UP_REQUESTS = 200


class Chain(NamedTuple):
    """One session's prompt and the engine's hashes of its blocks."""

    replica: int
    tokens: NDArray[np.uint32]
    hashes: NDArray[np.uint64]


class World:
    def __init__(self, blocks: int, replicas: int, requests: int, seed: int = 11) -> None:
        self.chains = max(1, blocks // CHAIN_BLOCKS)
        self.replicas = replicas
        self.requests = requests
        self._seed = seed

    def tokens(self, chain: int) -> NDArray[np.uint32]:
        return np.random.default_rng((self._seed, chain)).integers(0, VOCABULARY, CHAIN_TOKENS, np.uint32)

    def stored(self) -> Iterator[Chain]:
        """Every chain on its replica, every fourth on the next one too."""
        for chain in range(self.chains):
            tokens = self.tokens(chain)
            hashes = np.random.default_rng((self._seed, chain, 1)).integers(1, 2**63, CHAIN_BLOCKS).astype(np.uint64)
            yield Chain(chain % self.replicas, tokens, hashes)
            if chain % 4 == 0:
                yield Chain((chain + 1) % self.replicas, tokens, hashes)

    def asked(self) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        """Requests that share a random number of leading blocks with a chain: (blocks shared, tokens)."""
        random = np.random.default_rng((self._seed, 1 << 40))
        for number in range(self.requests + WARM_UP_REQUESTS):
            tokens = self.tokens(int(random.integers(self.chains)))
            shared = CHAIN_BLOCKS if number % 2 else int(random.integers(CHAIN_BLOCKS))
            tokens[shared * BLOCK_TOKENS :] = random.integers(VOCABULARY, 2 * VOCABULARY, CHAIN_TOKENS, np.uint32)[
                shared * BLOCK_TOKENS :
            ]
            yield shared, tokens


def resident_bytes(process: int | str = "self") -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096
