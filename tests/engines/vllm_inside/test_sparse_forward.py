"""Batches of the sparse forward: every position once, in causal order, never more than the engine takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend.contract import TokenRange
from semblend.integration.vllm.sparse_forward import _batches

pytestmark = pytest.mark.engine


@st.composite
def ranges(draw: st.DrawFn) -> list[TokenRange]:
    found, position = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40)), max_size=12)):
        position += gap
        found.append(TokenRange(position, position + length))
        position += length
    return found


@given(ranges(), st.integers(1, 50))
def test_coverage_order_and_size(parts: list[TokenRange], limit: int) -> None:
    batches = list(_batches(parts, limit))
    flat = [position for batch in batches for part in batch for position in range(part.start, part.end)]
    assert flat == [position for part in parts for position in range(part.start, part.end)]
    sizes = [sum(len(part) for part in batch) for batch in batches]
    assert all(size == limit for size in sizes[:-1])
    assert all(0 < size <= limit for size in sizes)
