from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from semblend.fingerprint.keyed import keyed_anchors

WORD = st.integers(0, 2**64 - 1)


@given(st.sets(WORD, max_size=50), st.tuples(WORD, WORD))
def test_different_anchors_stay_different_and_equal_ones_equal(values: set[int], salts: tuple[int, int]) -> None:
    hashes = np.array(sorted(values), np.uint64)
    keyed = keyed_anchors(hashes, salts)
    assert len(set(keyed.tolist())) == len(values)
    assert (keyed_anchors(hashes[::-1], salts)[::-1] == keyed).all()


def test_two_salts_have_nothing_in_common() -> None:
    hashes = np.arange(10_000, dtype=np.uint64)
    one, other = keyed_anchors(hashes, (1, 2)), keyed_anchors(hashes, (1, 3))
    assert not np.intersect1d(one, other).size
    bits = np.unpackbits((one ^ other).view(np.uint8)).mean()
    assert 0.45 < bits < 0.55
