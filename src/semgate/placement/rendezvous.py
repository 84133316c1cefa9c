"""Rendezvous hashing: a key ranks the replicas by name, so that adding or removing one moves 1/n of the keys.

Names, not slots, are hashed: every router computes the same ranking, in whatever order it discovered the replicas.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from semgate.placement.view import Keys

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@lru_cache(maxsize=4_096)
def name_key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, person=b"semgate-replica").digest(), "little")


@lru_cache(maxsize=16)
def name_keys(names: tuple[str, ...]) -> Keys:
    """One key per name; the fleet rarely changes, so the last few results are cached (8 bytes per replica)."""
    return np.array([name_key(name) for name in names], dtype=np.uint64)


def weights(key: int, names: Keys) -> Keys:
    """The weight of each replica for this key (splitmix64 of both); the largest is its home."""
    mixed = (names ^ np.uint64(key)) + _GAMMA
    mixed = (mixed ^ (mixed >> _30)) * _FIRST
    mixed = (mixed ^ (mixed >> _27)) * _SECOND
    result: Keys = mixed ^ (mixed >> _31)
    return result


def homes(key: int, names: Keys, copies: int = 1) -> list[int]:
    """Positions of the ``copies`` best replicas for this key, best first; the first n of n + 1 homes are those of n."""
    rank = weights(key, names)
    if copies == 1:
        return [int(rank.argmax())]
    order: list[int] = np.argsort(rank)[::-1][:copies].tolist()
    return order
