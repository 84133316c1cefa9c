"""The parts that count: prefix hits of block ids, cache curves against brute force, heaviest names, bounded memory."""

from __future__ import annotations

import random

import numpy as np

from semestimate.curve import CacheCurve
from semestimate.owners import Owners
from semestimate.prefix import PrefixBlocks, PrefixCache


def blocks(keys: list[int]) -> PrefixBlocks:
    spread = np.array(keys, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return PrefixBlocks(spread, np.full(len(keys), 16, np.int32))


def test_prefix_hits_and_their_owner() -> None:
    cache = PrefixCache()
    assert cache.add(blocks([1, 2, 3]), 0).tokens == 0
    hit = cache.add(blocks([1, 2, 9]), 1)
    assert (hit.tokens, hit.owner) == (32, 0)
    hit = cache.add(blocks([1, 2, 9, 10]), 2)
    assert (hit.tokens, hit.owner) == (48, 1)


def test_above_its_limit_the_prefix_cache_samples_and_stays_close() -> None:
    """Sessions of ten turns that grow by 20 blocks: every turn but the first hits all but its own blocks."""
    exact, sampled = PrefixCache(), PrefixCache(max_blocks=1 << 10)
    for session in range(60):
        for turn in range(1, 11):
            given = blocks([1 + session * 1000 + at for at in range(20 * turn)])
            exact.add(given, session)
            sampled.add(given, session)
    assert exact.shift == 0
    assert sampled.shift > 0
    assert sampled.count <= 1 << 10
    assert abs(sampled.hit_share - exact.hit_share) < 0.03


def test_the_curve_is_that_of_an_lru_cache() -> None:
    """Single keys of one token each, in any order: stack distances by brute force."""
    draws = random.Random(3)
    curve = CacheCurve()
    stack: list[int] = []
    distances: list[int] = []
    total = 4000
    for _ in range(total):
        key = int(draws.paretovariate(0.7)) % 500 + 1
        if key in stack:
            distances.append(stack.index(key) + 1)
            stack.remove(key)
        stack.insert(0, key)
        curve.add(np.array([key * 0x9E3779B97F4A7C15 % 2**64], np.uint64), np.ones(1, np.int32))
    for point in curve.points():
        expected = sum(distance <= point.capacity_tokens for distance in distances) / total
        assert abs(point.hit_share - expected) < 0.02, point


def test_the_heaviest_names_survive_any_number_of_light_ones() -> None:
    owners = Owners(max_names=32)
    for number in range(5000):
        owners.count_of(f"light{number}").prompt_tokens += 10
        owners.count_of("heavy").prompt_tokens += 100
    assert owners.heaviest(1)[0].name == "heavy"
    assert len(owners) > 4000
