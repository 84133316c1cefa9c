"""The fused kernel, interpreted: equal to the plain version and to ``rotate_keys``, and nothing else is written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from numpy.typing import NDArray
from tests.engines.vllm_inside.paged_memory import (
    FP8,
    Case,
    cases,
    fp8_rounded_by_torch,
    interpreted_kernel,
    pages_of,
)

from semblend.kv.move import MoveTable, Pages, PlainMove, Rows, rotation_forms
from semblend.kv.rope import LayerRotations, half_split, rotate_keys

pytestmark = pytest.mark.engine


def spacing(numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """One unit in the last place of each number in ``dtype``."""
    limits = torch.finfo(dtype)
    exponent = numbers.abs().clamp_min(limits.smallest_normal).log2().floor()
    return torch.exp2(exponent) * limits.eps


def assert_near(found: torch.Tensor, expected: torch.Tensor, scale: float) -> None:
    """Within one unit in the last place; fp32 sums may be fused, which shows where they cancel."""
    allowed = spacing(expected.float(), expected.dtype) + 1e-6 * scale
    off = (found.float() - expected.float()).abs() - allowed
    assert bool((off <= 0).all()), f"{float(off.max())} more than allowed"


def rows_of(side: torch.Tensor, slots: NDArray[np.int64]) -> torch.Tensor:
    at = torch.from_numpy(slots)
    return bits(side)[at // side.shape[1], at % side.shape[1]].view(side.dtype)


def bits(memory: torch.Tensor) -> torch.Tensor:
    """Numbers as they are stored, so that they can be compared and indexed whatever they are."""
    return memory.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[memory.dtype.itemsize])


def check(case: Case) -> None:
    _, source = case.source()
    (plain_raw, plain), (fused_raw, fused) = case.target(), case.target()
    before = plain_raw.clone()
    forms = rotation_forms(case.rotations)
    table = MoveTable.pack(case.rows, forms)
    PlainMove(source, plain, forms)(table, range(case.layers))
    with fp8_rounded_by_torch():
        interpreted_kernel().KernelMove(source, fused, forms)(table, range(case.layers))
    for layer in range(case.layers):
        for part in case.rows:
            keys = rows_of(source.keys[layer], part.sources)
            by_plain, by_kernel = (rows_of(pages.keys[layer], part.targets) for pages in (plain, fused))
            scale = float(keys.float().abs().max())
            if case.dtype not in FP8:
                assert_near(by_plain, rotate_keys(keys, part.shift, case.rotations[layer]), scale)
            assert_near(by_kernel, by_plain, scale)
            if source.values:
                values = bits(rows_of(source.values[layer], part.sources))
                assert torch.equal(bits(rows_of(plain.values[layer], part.targets)), values)
                assert torch.equal(bits(rows_of(fused.values[layer], part.targets)), values)
    moved = np.concatenate([part.targets for part in case.rows])
    for raw, pages in ((plain_raw, plain), (fused_raw, fused)):
        put_back(pages, before, moved)
        assert torch.equal(bits(raw), bits(before)), "other rows were written"


def put_back(pages: Pages, before: torch.Tensor, slots: NDArray[np.int64]) -> None:
    """Undo the move, so that the whole memory can be compared."""
    at = torch.from_numpy(slots)
    where = (at // pages.block_tokens, at % pages.block_tokens)
    for view in (*pages.keys, *pages.values):
        bits(view)[where] = bits(before.as_strided(view.shape, view.stride(), view.storage_offset()))[where]


@given(cases())
@settings(max_examples=80)
def test_the_kernel_is_the_plain_version_for_any_runs_layouts_and_forms(case: Case) -> None:
    check(case)


@given(cases(FP8))
@settings(max_examples=15)
def test_fp8_keys_are_rotated_in_fp32_and_stored_again(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("dtype", FP8)
def test_a_rotated_fp8_key_is_cut_at_the_largest_number(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    forms = rotation_forms(LayerRotations.same(half_split(1e4, 2), 1))
    table = MoveTable.pack([Rows(np.array([0]), np.array([1]), 70)], forms)  # cosine + sine is 1.4 there
    for move in (PlainMove, interpreted_kernel().KernelMove):
        memory, pages = pages_of("one vector", 1, 2, 1, 1, 2, dtype, 0)
        memory[0, 0] = torch.tensor([[[largest, -largest]]]).to(dtype)
        with fp8_rounded_by_torch():
            move(pages, pages, forms)(table, range(1))
        found = memory[0, 1].float().flatten().tolist()
        assert all(abs(number) <= largest for number in found), found
        assert found[0] == largest


def test_a_range_of_layers_leaves_the_others_alone() -> None:
    forms = rotation_forms(LayerRotations.same(half_split(1e4, 8), 5))
    table = MoveTable.pack([Rows(np.arange(4), np.arange(4) + 8, 3)], forms)
    memory, pages = pages_of("NHD", 5, 4, 4, 1, 8, torch.float32, 1)
    before = memory.clone()
    interpreted_kernel().KernelMove(pages, pages, forms)(table, range(1, 3))
    changed = [layer for layer in range(5) if not torch.equal(memory[layer], before[layer])]
    assert changed == [1, 2]


def test_a_table_without_rows_moves_nothing() -> None:
    forms = rotation_forms(LayerRotations.same(half_split(1e4, 8), 2))
    memory, pages = pages_of("NHD", 2, 4, 4, 1, 8, torch.float32, 1)
    before = memory.clone()
    none = np.empty(0, np.int64)
    interpreted_kernel().KernelMove(pages, pages, forms)(MoveTable.pack([Rows(none, none, 1)], forms), range(2))
    assert torch.equal(memory, before)
