from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semblend.fingerprint import anchors as module
from semblend.fingerprint.anchors import GUARANTEE, Anchors, select_anchors, thin_periodic

SEEDS = st.integers(0, 2**32 - 1)


def test_a_prompt_below_the_guarantee_has_no_anchors() -> None:
    tokens = np.arange(GUARANTEE + 10, dtype=np.uint32)
    assert len(select_anchors(tokens, 11).positions) == 0
    assert select_anchors(tokens, 10).positions.min() >= 10


def placed(anchors: Anchors, start: int) -> set[tuple[int, int]]:
    return set(zip((anchors.positions - start).tolist(), anchors.hashes.tolist(), strict=True))


@settings(deadline=None)
@given(seed=SEEDS, vocabulary=st.sampled_from([1, 2, 3, 50_000]), left=st.integers(0, 80), right=st.integers(0, 80))
def test_a_shared_window_shares_an_anchor_at_the_same_place(seed: int, vocabulary: int, left: int, right: int) -> None:
    """The guarantee itself: exactly GUARANTEE common tokens, anything around them."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(0, vocabulary, GUARANTEE)
    a = np.concatenate([rng.integers(0, vocabulary, left), shared, rng.integers(0, vocabulary, 50)]).astype(np.uint32)
    b = np.concatenate([rng.integers(0, vocabulary, right), shared, rng.integers(0, vocabulary, 70)]).astype(np.uint32)
    in_a = placed(select_anchors(a), left)
    in_b = placed(select_anchors(b), right)
    inside = {(p, h) for p, h in in_a & in_b if 0 <= p <= GUARANTEE - module.GRAM}
    assert inside


def test_density_is_what_winnowing_promises() -> None:
    tokens = np.random.default_rng(0).integers(0, 50_000, 200_000).astype(np.uint32)
    share = len(select_anchors(tokens).positions) / len(tokens)
    assert share == pytest.approx(2 / (module.WINDOW + 1), rel=0.05)


@pytest.mark.parametrize("period", [1, 2, 7, 31])
def test_periodic_text_costs_a_donor_few_anchors(period: int) -> None:
    tokens = np.tile(np.arange(period, dtype=np.uint32), 4096 // period + 1)[:4096]
    everywhere = select_anchors(tokens)
    assert len(everywhere.positions) >= 4096 // max(period, 32) - 4
    assert len(thin_periodic(everywhere).positions) <= 4


def test_thinning_leaves_ordinary_text_alone() -> None:
    anchors = select_anchors(np.random.default_rng(1).integers(0, 50_000, 5000).astype(np.uint32))
    assert thin_periodic(anchors) is anchors
    empty = Anchors(np.empty(0, np.int32), np.empty(0, np.uint64))
    assert thin_periodic(empty) is empty
