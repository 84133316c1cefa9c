"""Keys moved by a shift equal keys computed at the new position, and moves compose."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from semblend.kv.rope import LayerRotations, Rotation, half_split, no_rotation, rotate_keys

pytestmark = pytest.mark.models

SHIFTS = st.integers(-8_000, 8_000)
THETAS = st.sampled_from([10_000.0, 100_000.0, 1_000_000.0])


def random_keys(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def rope_reference(plain: torch.Tensor, positions: list[int], theta: float, rotary_dim: int) -> torch.Tensor:
    """Textbook RoPE from absolute positions, pair by pair, in fp64."""
    out = plain.double().clone()
    half = rotary_dim // 2
    for token, position in enumerate(positions):
        for pair in range(half):
            angle = torch.tensor(position * theta ** (-2 * pair / rotary_dim), dtype=torch.float64)
            a, b = plain[token, :, pair].double(), plain[token, :, pair + half].double()
            out[token, :, pair] = a * angle.cos() - b * angle.sin()
            out[token, :, pair + half] = b * angle.cos() + a * angle.sin()
    return out


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    donor_start=st.integers(0, 8_000),
    shift=SHIFTS,
    theta=THETAS,
    rotary_dim=st.sampled_from([2, 8, 16]),
    tokens=st.integers(1, 5),
)
def test_moved_keys_equal_keys_computed_at_the_new_position(
    seed: int, donor_start: int, shift: int, theta: float, rotary_dim: int, tokens: int
) -> None:
    plain = random_keys(seed, tokens, 2, 16)
    positions = list(range(donor_start, donor_start + tokens))
    at_donor = rope_reference(plain, positions, theta, rotary_dim).float()
    at_recipient = rope_reference(plain, [position + shift for position in positions], theta, rotary_dim)
    moved = rotate_keys(at_donor, shift, half_split(theta, rotary_dim))
    # fp32 inverse frequencies, as engines use them, turn by up to 8000 * 2**-24 rad away from the fp64 reference
    torch.testing.assert_close(moved.double(), at_recipient, rtol=0, atol=5e-3)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), first=SHIFTS, second=SHIFTS, theta=THETAS)
def test_shifts_compose_and_invert(seed: int, first: int, second: int, theta: float) -> None:
    rotation = half_split(theta, 16)
    keys = random_keys(seed, 3, 2, 16)
    twice = rotate_keys(rotate_keys(keys, first, rotation), second, rotation)
    torch.testing.assert_close(twice, rotate_keys(keys, first + second, rotation), rtol=0, atol=1e-5)
    back = rotate_keys(rotate_keys(keys, first, rotation), -first, rotation)
    torch.testing.assert_close(back, keys, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_result_is_the_fp32_result_rounded_once(dtype: torch.dtype) -> None:
    rotation = half_split(100_000.0, 64)
    keys = random_keys(1, 50, 3, 64).to(dtype)
    moved = rotate_keys(keys, 777, rotation)
    assert moved.dtype == dtype
    assert torch.equal(moved, rotate_keys(keys.float(), 777, rotation).to(dtype))


def test_zero_shift_returns_the_keys_themselves() -> None:
    keys = random_keys(2, 4, 2, 8)
    assert rotate_keys(keys, 0, half_split(10_000.0, 8)) is keys


def test_dimensions_beyond_the_rotary_ones_are_kept_and_the_input_is_not_touched() -> None:
    keys = random_keys(3, 7, 2, 24)
    before = keys.clone()
    moved = rotate_keys(keys, 5, half_split(10_000.0, 16))
    assert torch.equal(moved[..., 16:], keys[..., 16:])
    assert not torch.equal(moved[..., :16], keys[..., :16])
    assert torch.equal(keys, before)


@pytest.mark.parametrize("tokens", [1, 100, 400, 3_000])  # many layers in a chunk, and many chunks in a layer
def test_layers_rotate_in_one_call_also_from_a_strided_view(tokens: int) -> None:
    """The shape a donor is read in: keys are every other slice of [layers, 2, tokens, heads, dim]."""
    rotation = half_split(100_000.0, 64)
    stored = random_keys(4, 5, 2, tokens + 17, 3, 64).to(torch.bfloat16)
    together = rotate_keys(stored[:, 0, 17:], 123, rotation)
    apart = torch.stack([rotate_keys(layer[0, 17:].contiguous(), 123, rotation) for layer in stored])
    assert together.is_contiguous()
    assert torch.equal(together, apart)
    assert torch.equal(rotate_keys(stored, 123, rotation)[:, 0, 17:], apart)


def test_one_frequency_by_hand() -> None:
    quarter_turn = Rotation(torch.tensor([torch.pi / 2]))
    moved = rotate_keys(torch.tensor([[[1.0, 0.0]]]), 1, quarter_turn)
    torch.testing.assert_close(moved, torch.tensor([[[0.0, 1.0]]]), rtol=0, atol=1e-6)


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="even and positive"):
        half_split(10_000.0, 7)
    with pytest.raises(ValueError, match="head_dim is 8"):
        rotate_keys(torch.zeros(1, 1, 8), 1, half_split(10_000.0, 16))
    with pytest.raises(ValueError, match="must end in"):
        rotate_keys(torch.zeros(1, 8), 1, half_split(10_000.0, 8))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), shift=SHIFTS, first_dim=st.sampled_from([0, 4]), rotary_dim=st.sampled_from([4, 8]))
def test_interleaved_pairs_turn_as_half_split_ones_after_reordering(
    seed: int, shift: int, first_dim: int, rotary_dim: int
) -> None:
    keys = random_keys(seed, 3, 2, 16)
    plain = half_split(10_000.0, rotary_dim)
    order = [*range(first_dim, first_dim + rotary_dim, 2), *range(first_dim + 1, first_dim + rotary_dim, 2)]
    expected = keys.clone()
    expected[..., order] = rotate_keys(keys[..., order], shift, plain)
    moved = rotate_keys(keys, shift, Rotation(plain.inverse_frequencies, interleaved=True, first_dim=first_dim))
    assert torch.equal(moved, expected)


@settings(max_examples=25, deadline=None)
@given(kinds=st.lists(st.integers(0, 2), min_size=1, max_size=6), shift=SHIFTS, tokens=st.sampled_from([3, 1200]))
def test_each_layer_moves_by_its_own_rotation(kinds: list[int], shift: int, tokens: int) -> None:
    known = (half_split(10_000.0, 8), half_split(1_000_000.0, 8), no_rotation())
    rotations = LayerRotations([known[kind] for kind in kinds])
    keys = random_keys(1, len(kinds), tokens, 1, 8)
    moved = list(rotations.move(keys, shift))
    assert len(moved) == len(kinds)
    for layer, kind in enumerate(kinds):
        assert torch.equal(moved[layer], rotate_keys(keys[layer], shift, known[kind]))
        if kind == 2:
            assert torch.equal(moved[layer], keys[layer])


def test_keys_of_another_number_of_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="keys of 2 layers, rotations of 3"):
        list(LayerRotations.same(half_split(10_000.0, 8), 3).move(torch.zeros(2, 4, 1, 8), 1))
    with pytest.raises(ValueError, match="at least one layer"):
        LayerRotations([])
