"""A rotation read from a cos/sin table moves keys as the table itself would, for every scaling a table can hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from semblend.kv.rope import Rotation, rotate_keys
from semblend.kv.rope_table import RotaryTableError, rotation_from_table

pytestmark = pytest.mark.models


def frequencies_of(theta: float, rotary_dim: int, factors: list[float]) -> torch.Tensor:
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim
    return 1.0 / (torch.tensor((factors * rotary_dim)[: rotary_dim // 2]) * theta**exponents)


def table_of(frequencies: torch.Tensor, positions: int, scale: float) -> torch.Tensor:
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies[None]
    return torch.cat([angles.cos() * scale, angles.sin() * scale], -1)


def rotate_by_table(plain: torch.Tensor, position: int, table: torch.Tensor, *, interleaved: bool) -> torch.Tensor:
    """What an engine does: one row of the table for one token [heads, dim], mscale and all."""
    cosine, sine = table[position].double().chunk(2)
    pairs = cosine.shape[0]
    out = plain.double().clone()
    for pair in range(pairs):
        a, b = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + pairs)
        first, second = plain[:, a].double(), plain[:, b].double()
        out[:, a] = first * cosine[pair] - second * sine[pair]
        out[:, b] = second * cosine[pair] + first * sine[pair]
    return out


@settings(max_examples=60, deadline=None)
@given(
    theta=st.sampled_from([1e4, 1e5, 1e6]),
    rotary_dim=st.sampled_from([2, 8, 16]),
    factors=st.lists(st.sampled_from([1.0, 4.0, 8.0, 32.0]), min_size=1, max_size=8),
    scale=st.sampled_from([1.0, 0.7, 1.35]),
    positions=st.integers(600, 9000),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    interleaved=st.booleans(),
    seed=st.integers(0, 99),
)
def test_keys_move_as_the_table_would_have_rotated_them(
    theta: float,
    rotary_dim: int,
    factors: list[float],
    scale: float,
    positions: int,
    ends: tuple[float, float],
    interleaved: bool,
    seed: int,
) -> None:
    table = table_of(frequencies_of(theta, rotary_dim, factors), positions, scale)
    rotation = rotation_from_table(table, interleaved=interleaved)
    plain = torch.randn(2, rotary_dim + 4, generator=torch.Generator().manual_seed(seed))
    start, end = (int(part * (positions - 1)) for part in ends)
    at_start = rotate_by_table(plain, start, table, interleaved=interleaved)
    moved = rotate_keys(at_start[None].float(), end - start, rotation)[0]
    # fp32 rounds the product of position and frequency: up to 9000 * 2**-24 rad at each end
    torch.testing.assert_close(
        moved.double(), rotate_by_table(plain, end, table, interleaved=interleaved), rtol=0, atol=5e-3
    )


def test_the_frequency_is_exact_to_fp32() -> None:
    frequencies = frequencies_of(5e5, 64, [1.0, 8.0])
    found = rotation_from_table(table_of(frequencies, 131_072, 1.2), interleaved=False).inverse_frequencies
    torch.testing.assert_close(found, frequencies, rtol=3e-6, atol=1e-12)


def test_at_position_100_000_the_moved_key_is_as_near_as_the_engine_rounds() -> None:
    table = table_of(frequencies_of(1e4, 64, [1.0]), 110_000, 1.0)
    rotation = rotation_from_table(table, interleaved=False)
    plain = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    moved = rotate_keys(rotate_by_table(plain, 7, table, interleaved=False)[None].float(), 100_000, rotation)[0]
    wanted = rotate_by_table(plain, 100_007, table, interleaved=False)
    assert float((moved - wanted).norm() / wanted.norm()) < 6e-3


def test_a_bf16_table_is_read_within_its_rounding() -> None:
    frequencies = frequencies_of(1e4, 32, [1.0])
    found = rotation_from_table(table_of(frequencies, 4096, 1.0).bfloat16(), interleaved=False).inverse_frequencies
    torch.testing.assert_close(found, frequencies, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (torch.randn(300, 16), "position 0|in proportion"),
        (torch.cat([torch.ones(1, 8), torch.zeros(1, 8)], -1), "two or more rows"),
        (torch.ones(4, 3), "two or more rows"),
        (torch.ones(4, 4, dtype=torch.int32), "cannot be read"),
    ],
)
def test_other_tables_are_refused(table: torch.Tensor, message: str) -> None:
    with pytest.raises(RotaryTableError, match=message):
        rotation_from_table(table, interleaved=False)


def test_a_table_that_restarts_by_chunk_is_refused() -> None:
    chunk = table_of(frequencies_of(1e4, 16, [1.0]), 256, 1.0)
    with pytest.raises(RotaryTableError, match="in proportion"):
        rotation_from_table(chunk.repeat(4, 1), interleaved=False)


def test_a_single_wrong_row_among_those_looked_at_is_refused() -> None:
    table = table_of(frequencies_of(1e4, 16, [1.0]), 512, 1.0)
    table[300, 3] = -table[300, 3]
    with pytest.raises(RotaryTableError, match="pair 3 at position 300"):
        rotation_from_table(table, interleaved=False)


def test_a_table_of_ones_and_zeros_is_no_rotation() -> None:
    found = rotation_from_table(torch.cat([torch.ones(64, 8), torch.zeros(64, 8)], -1), interleaved=False)
    assert torch.equal(found.inverse_frequencies, torch.zeros(8))
    keys = torch.randn(3, 2, 16)
    assert torch.equal(rotate_keys(keys, 40, found), keys)
    assert Rotation(torch.empty(0)).is_identity
