from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sembench.replay.pool import DonorPool
from sembench.replay.windows import WindowIndex

# Few different tokens: long coincidences and repeats inside one prompt are the rule.
PROMPTS = st.lists(st.integers(0, 2), max_size=60)


def array(values: list[int]) -> NDArray[np.int64]:
    return np.asarray(values, dtype=np.int64)


def covered_by_search(recipient: list[int], donors: list[list[int]], run: int) -> list[bool]:
    seen = {tuple(donor[i : i + run]) for donor in donors for i in range(len(donor) - run + 1)}
    covered = [False] * len(recipient)
    for i in range(len(recipient) - run + 1):
        if tuple(recipient[i : i + run]) in seen:
            covered[i : i + run] = [True] * run
    return covered


@given(st.lists(PROMPTS, max_size=6), PROMPTS, st.integers(1, 12))
def test_windows_find_what_a_search_finds(donors: list[list[int]], recipient: list[int], run: int) -> None:
    index = WindowIndex(run)
    for donor in donors:
        index.add(array(donor))
    assert index.covered(array(recipient)).tolist() == covered_by_search(recipient, donors, run)


def test_many_donors_are_all_found_again() -> None:
    generator = np.random.default_rng(7)
    donors = [generator.integers(0, 2**31, 200) for _ in range(40)]
    index = WindowIndex()
    for donor in donors:
        index.add(donor)
    for donor in donors:
        middle = donor[40:140]
        framed = np.concatenate([generator.integers(0, 2**31, 30), middle, generator.integers(0, 2**31, 30)])
        assert index.covered(framed).sum() == 100
        assert not index.covered(donor[:63]).any()
    assert not index.covered(generator.integers(0, 2**31, 5000)).any()


def test_a_hash_collision_cannot_count(monkeypatch: object) -> None:
    """With every window hashing alike, only the comparison of tokens is left, and it must hold."""
    import pytest

    from sembench.replay import windows

    assert isinstance(monkeypatch, pytest.MonkeyPatch)
    monkeypatch.setattr(windows, "window_hashes", lambda ids, run: np.zeros(max(0, len(ids) - run + 1), np.uint64))
    index = WindowIndex(4)
    index.add(array([1, 2, 3, 4, 5]))
    assert index.covered(array([1, 2, 3, 4])).all()
    assert not index.covered(array([9, 9, 9, 9, 9])).any()


@given(st.lists(PROMPTS, max_size=5), PROMPTS, st.integers(1, 5))
def test_exact_blocks_against_a_search(donors: list[list[int]], recipient: list[int], size: int) -> None:
    pool = DonorPool(size)
    for donor in donors:
        pool.add(array(donor))
    count = len(recipient) // size
    blocks = [recipient[i * size : (i + 1) * size] for i in range(count)]
    known = [donor[i * size : (i + 1) * size] for donor in donors for i in range(len(donor) // size)]
    # A prefix cache serves the longest prefix of full blocks that one earlier prompt begins with.
    prefix = 0
    for donor in donors:
        shared = 0
        while shared < min(count, len(donor) // size) and blocks[shared] == donor[shared * size : (shared + 1) * size]:
            shared += 1
        prefix = max(prefix, shared)
    evidence = pool.evidence(array(recipient))
    assert evidence.total_blocks == count
    assert evidence.hit_blocks == sum(block in known for block in blocks)
    assert evidence.prefix_blocks == prefix


def test_a_prefix_is_not_pieced_together_from_two_donors() -> None:
    pool = DonorPool(2)
    pool.add(array([1, 2, 9, 9]))
    pool.add(array([8, 8, 3, 4]))
    evidence = pool.evidence(array([1, 2, 3, 4]))
    assert (evidence.hit_blocks, evidence.prefix_blocks) == (2, 1)
