"""Windows cover the whole text, stay within their bound, and content windows do not depend on what precedes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend.fingerprint.embed.windows import content_windows, overlapping_windows, spread


@given(st.integers(0, 5000), st.integers(1, 300), st.data())
def test_overlapping_windows_cover_everything_at_full_size(length: int, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    spans = overlapping_windows(length, size, overlap, max_windows=10_000)
    covered = np.zeros(length, dtype=bool)
    for start, end in spans.tolist():
        assert 0 <= start < end <= length
        assert end - start == min(size, length)
        covered[start:end] = True
    assert covered.all()
    assert (spans[1:, 0] <= spans[:-1, 1] - min(overlap, length)).all()


@given(st.integers(1, 100_000), st.integers(1, 64))
def test_too_many_windows_are_thinned_evenly_with_both_ends(length: int, most: int) -> None:
    spans = overlapping_windows(length, 254, 31, most)
    assert 1 <= len(spans) <= most
    assert spans[0, 0] == 0
    if most > 1:
        assert spans[-1, 1] == length
        gaps = np.diff(spans[:-1, 0])
        assert len(gaps) == 0 or gaps.max() - gaps.min() <= 2 * 223


@given(st.lists(st.integers(0, 2**64 - 1), max_size=600), st.integers(1, 40))
def test_content_windows_divide_the_text(values: list[int], radius: int) -> None:
    spans = content_windows(np.array(values, dtype=np.uint64), radius, max_windows=10_000)
    edges = [0, *spans[:, 1].tolist()]
    assert edges[-1] == len(values)
    assert spans[:, 0].tolist() == edges[:-1]
    assert (spans[:, 1] - spans[:, 0] <= 4 * radius).all()
    assert (spans[:, 1] > spans[:, 0]).all()


@given(st.integers(0, 3000))
def test_content_windows_of_a_passage_survive_a_preamble(preamble: int) -> None:
    rng = np.random.default_rng(1)
    passage = rng.integers(0, 2**63, 2000, dtype=np.uint64)
    alone = {(int(s), int(e)) for s, e in content_windows(passage, 32)}
    moved = np.concatenate([rng.integers(0, 2**63, preamble, dtype=np.uint64), passage])
    behind = {(int(s) - preamble, int(e) - preamble) for s, e in content_windows(moved, 32, max_windows=10_000)}
    assert len(alone & behind) >= len(alone) - 2


def test_repeated_words_are_divided_by_length() -> None:
    assert len(content_windows(np.full(1000, 7, dtype=np.uint64), 25)) == 10


@pytest.mark.parametrize(("size", "overlap"), [(4, 4), (4, -1)])
def test_windows_must_advance(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap"):
        overlapping_windows(10, size, overlap)


def test_at_least_one_window_is_kept() -> None:
    with pytest.raises(ValueError, match="positive"):
        spread(np.zeros((2, 2), dtype=np.int64), 0)
