"""The plain move: rows land rotated where they belong, layers keep their own rotations, and misfits are refused."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from semblend.kv.move import MoveTable, Pages, PlainMove, Rows, move_between, rotation_forms
from semblend.kv.rope import LayerRotations, Rotation, half_split, no_rotation, rotate_keys

pytestmark = pytest.mark.models
ROTATION = half_split(1e4, 8)


def memory(layers: int = 2, dim: int = 8, dtype: torch.dtype = torch.float32, tokens: int = 4) -> torch.Tensor:
    raw = torch.randn((layers, 2, 6, tokens, 2, dim), generator=torch.Generator().manual_seed(0))
    return raw.to(dtype)


def pages(raw: torch.Tensor) -> Pages:
    return Pages(tuple(raw[:, 0]), tuple(raw[:, 1]))


def test_runs_move_by_their_own_shifts_and_layers_by_their_own_rotations() -> None:
    rotations = LayerRotations([ROTATION, no_rotation(), Rotation(torch.tensor([0.5]), True, 2), half_split(1e6, 8)])
    forms = rotation_forms(rotations)
    assert [form.layers.tolist() for form in forms] == [[0, 1, 3], [2]]
    assert forms[0].kinds.tolist() == [0, 1, 2]
    raw = memory(4)
    before = raw.clone()
    parts = [Rows(np.array([0, 1, 2]), np.array([23, 8, 9]), 7), Rows(np.array([5]), np.array([20]), -3)]
    move_between(pages(raw), pages(raw), forms)(MoveTable.pack(parts, forms), range(4))
    expected = before.clone()
    flat, old = expected.view(4, 2, 24, 2, 8), before.view(4, 2, 24, 2, 8)
    for part in parts:
        for layer in range(4):
            flat[layer, 0, part.targets] = rotate_keys(old[layer, 0, part.sources], part.shift, rotations[layer])
            flat[layer, 1, part.targets] = old[layer, 1, part.sources]
    torch.testing.assert_close(raw, expected)


def test_equal_rotations_share_one_row_of_angles() -> None:
    [form] = rotation_forms(LayerRotations([ROTATION, half_split(1e6, 8), half_split(1e4, 8)]))
    assert form.kinds.tolist() == [0, 1, 0]
    assert form.frequencies.shape == (2, 4)


def test_a_model_without_rotation_is_copied() -> None:
    forms = rotation_forms(LayerRotations.same(no_rotation(), 2))
    raw = memory()
    before = raw.clone()
    table = MoveTable.pack([Rows(np.array([1]), np.array([7]), 50)], forms)
    PlainMove(pages(raw), pages(raw), forms)(table, range(2))
    assert torch.equal(raw[:, :, 1, 3], before[:, :, 0, 1])


def test_a_table_is_one_buffer_of_the_caller_s_memory() -> None:
    asked: list[int] = []

    def allocate(size: int) -> torch.Tensor:
        asked.append(size)
        return torch.empty(size, dtype=torch.uint8)

    forms = rotation_forms(LayerRotations.same(ROTATION, 2))
    table = MoveTable.pack([Rows(np.arange(5), np.arange(5) + 9, 3)], forms, allocate)
    assert len(asked) == 1
    assert table.buffer.numel() == asked[0]
    assert table.targets.tolist() == [9, 10, 11, 12, 13]
    assert table.run_of.tolist() == [0] * 5
    cosine, sine = ROTATION.angles(3)
    found = table.angles(0)
    assert torch.equal(found[0][0, 0], cosine)
    assert torch.equal(found[1][0, 0], sine)


@pytest.mark.parametrize(
    ("target", "layers", "why"),
    [
        (memory(dim=6), 2, "do not fit"),
        (memory(dtype=torch.bfloat16), 2, "do not fit"),
        (memory(layers=3), 2, "do not fit"),
        (memory(), 3, "rotations of 3 layers for 2"),
    ],
)
def test_memories_that_do_not_fit_are_refused(target: torch.Tensor, layers: int, why: str) -> None:
    forms = rotation_forms(LayerRotations.same(ROTATION, layers))
    with pytest.raises(ValueError, match=why):
        PlainMove(pages(memory()), pages(target), forms)


def test_pairs_outside_the_head_are_refused() -> None:
    forms = rotation_forms(LayerRotations.same(Rotation(torch.ones(4), False, 2), 2))
    with pytest.raises(ValueError, match="head_dim is 8"):
        PlainMove(pages(memory()), pages(memory()), forms)


def test_layers_that_lie_differently_are_refused() -> None:
    raw = memory()
    other = torch.zeros((4, 6, 2, 8)).transpose(0, 1)
    with pytest.raises(ValueError, match="differ in shape, strides"):
        Pages((raw[0, 0], other))
    with pytest.raises(ValueError, match="adjacent"):
        Pages((raw[0, 0].transpose(2, 3),))
    with pytest.raises(ValueError, match="keys and values"):
        Pages((raw[0, 0],), (raw[0, 0].bfloat16(),))
