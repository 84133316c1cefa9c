from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semgate.placement.rendezvous import homes, name_keys

KEYS = [int(key) for key in np.random.default_rng(3).integers(1, 2**63, size=2_000, dtype=np.uint64)]


def home_names(names: tuple[str, ...]) -> list[str]:
    keys = name_keys(names)
    return [names[homes(key, keys)[0]] for key in KEYS]


@settings(max_examples=5, deadline=None)
@given(st.integers(2, 64), st.integers(0, 10_000))
def test_adding_a_replica_moves_its_share_to_it_and_nothing_else(count: int, salt: int) -> None:
    names = tuple(f"replica-{salt}-{number}" for number in range(count))
    before, after = home_names(names[:-1]), home_names(names)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) <= {names[-1]}
    expected = len(KEYS) / count
    assert abs(len(moved) - expected) < 6.0 * np.sqrt(expected) + 1.0


@settings(max_examples=20, deadline=None)
@given(st.permutations([f"replica-{number}" for number in range(9)]), st.integers(0, 2**64 - 1), st.integers(1, 9))
def test_order_does_not_matter_and_more_copies_extend_fewer(names: list[str], key: int, copies: int) -> None:
    keys = name_keys(tuple(names))
    ranked = [names[place] for place in homes(key, keys, 9)]
    assert [names[place] for place in homes(key, keys, copies)] == ranked[:copies]
    stable = tuple(sorted(names))
    assert [stable[place] for place in homes(key, name_keys(stable), 9)] == ranked


def test_keys_are_spread_evenly() -> None:
    names = tuple(f"10.0.0.{number}:8000" for number in range(16))
    counts = np.unique(home_names(names), return_counts=True)[1]
    assert counts.size == 16
    assert counts.max() < 1.45 * len(KEYS) / 16
