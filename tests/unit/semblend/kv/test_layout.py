"""Any permutation a fake engine packs its blocks by is found and undone bit for bit; anything else is refused."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("torch")

import torch

from semblend.kv.layout import BlockLayout, LayoutError, StridedMap, factor_strides, probe_layout

pytestmark = pytest.mark.models

DTYPES = st.sampled_from([torch.bfloat16, torch.float16, torch.float32])


class FakeEngine:
    """A cache of one layer whose blocks scatter element (side, token, head, dim) to offsets[...]."""

    def __init__(
        self, offsets: NDArray[np.int64], shape: tuple[int, int, int], blocks: int, dtype: torch.dtype
    ) -> None:
        self.shape = shape
        self.offsets = torch.from_numpy(offsets.reshape(2, *shape))
        self.cache = torch.full((blocks, 2 * prod(shape)), 7.0, dtype=dtype)

    def write(self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        for key, value, slot in zip(keys, values, slots.tolist(), strict=True):
            block, token = divmod(slot, self.shape[0])
            self.cache[block, self.offsets[0, token]] = key
            self.cache[block, self.offsets[1, token]] = value

    def probe(self, block: int = 0) -> BlockLayout:
        tokens, heads, head_dim = self.shape
        return probe_layout(
            lambda keys, values, slots: self.write(keys, values, slots + block * tokens),
            self.cache[block],
            block_tokens=tokens,
            heads=heads,
            head_dim=head_dim,
        )


def amx_offsets(tokens: int, heads: int, head_dim: int) -> NDArray[np.int64]:
    """What vLLM's CPU backend does to bf16 on AMX: K in pairs of dimensions, V in pairs of tokens, tiles of 16."""
    token, head, dim = np.ogrid[:tokens, :heads, :head_dim]
    start = head * 2 * tokens * head_dim
    keys = start + token // 16 * 16 * head_dim + dim // 2 * 32 + token % 16 * 2 + dim % 2
    values = start + tokens * head_dim + dim // 16 * 16 * tokens + token // 2 * 32 + dim % 16 * 2 + token % 2
    return np.stack([keys, values]).astype(np.int64)


def check_round_trip(engine: FakeEngine, layout: BlockLayout, seed: int) -> None:
    tokens = engine.cache.shape[0] * engine.shape[0]
    source = torch.Generator().manual_seed(seed)
    keys, values = torch.randn((2, tokens, *engine.shape[1:]), generator=source).to(engine.cache.dtype)
    engine.write(keys, values, torch.arange(tokens))
    for chosen in (layout, replace(layout, keys=None, values=None)):  # strided copies, if any, and the gather
        read_keys, read_values = chosen.unpack(engine.cache)
        assert torch.equal(read_keys, keys)
        assert torch.equal(read_values, values)
        assert read_keys.is_contiguous()
        assert read_values.is_contiguous()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 9_999),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 12)),
    dtype=DTYPES,
)
def test_random_permutations_round_trip(seed: int, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    offsets = np.random.default_rng(seed).permutation(2 * prod(shape))
    engine = FakeEngine(offsets, shape, 3, dtype)
    check_round_trip(engine, engine.probe(block=1), seed)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=DTYPES)
def test_strided_packings_are_recognised_and_unpack_like_the_gather(data: st.DataObject, dtype: torch.dtype) -> None:
    shape = data.draw(
        st.tuples(st.sampled_from([1, 2, 4, 6, 16]), st.integers(1, 3), st.sampled_from([2, 4, 8, 12, 16]))
    )
    axes = [2]
    for size in shape:  # split every axis once, then order the parts in memory at will
        part = data.draw(st.sampled_from([number for number in range(1, size + 1) if size % number == 0]))
        axes += [size // part, part]
    order = data.draw(st.permutations(range(len(axes))))
    in_memory = np.arange(prod(axes)).reshape([axes[axis] for axis in order])
    offsets = in_memory.transpose(np.argsort(order)).reshape(-1)
    engine = FakeEngine(offsets, shape, 2, dtype)
    layout = engine.probe()
    assert layout.is_strided
    assert layout.keys is not None
    assert np.array_equal(layout.keys.offsets(), offsets[: prod(shape)])
    check_round_trip(engine, layout, 0)


def test_the_packing_of_the_real_cpu_backend_factors() -> None:
    offsets = amx_offsets(32, 2, 32)
    engine = FakeEngine(offsets, (32, 2, 32), 2, torch.bfloat16)
    layout = engine.probe()
    assert layout.keys == StridedMap(0, (2, 16, 2, 16, 2), (512, 2, 2048, 32, 1))
    assert layout.values == StridedMap(1024, (16, 2, 2, 2, 16), (32, 1, 2048, 512, 2))
    check_round_trip(engine, layout, 5)


def test_unpacking_accepts_views_with_gaps_between_blocks_and_odd_starts() -> None:
    offsets = amx_offsets(32, 1, 32)
    engine = FakeEngine(offsets, (32, 1, 32), 4, torch.bfloat16)
    layout = engine.probe()
    engine.cache.copy_(torch.randn(engine.cache.shape))
    expected = layout.unpack(engine.cache)
    padded = torch.zeros(4, engine.cache.shape[1] + 3, dtype=torch.bfloat16)
    padded[:, 1:-2] = engine.cache
    for got, want in zip(layout.unpack(padded[:, 1:-2]), expected, strict=True):
        assert torch.equal(got, want)
    for got, want in zip(layout.unpack(engine.cache[1::2].view(2, 1, 32, 64)), expected, strict=True):
        assert torch.equal(got, want.view(4, 32, 1, 32)[1::2].reshape(got.shape))
    assert layout.unpack(engine.cache[:0])[0].shape == (0, 1, 32)


def test_unpacked_tensors_never_share_memory_with_the_cache() -> None:
    engine = FakeEngine(np.arange(2 * 4 * 1 * 8), (4, 1, 8), 1, torch.bfloat16)
    keys, values = engine.probe().unpack(engine.cache)
    keys.zero_()
    values.zero_()
    assert bool((engine.cache == 7.0).all())


def test_the_probe_restores_the_block_it_used() -> None:
    engine = FakeEngine(np.random.default_rng(0).permutation(96), (4, 2, 6), 3, torch.bfloat16)
    engine.probe(block=2)
    assert bool((engine.cache == 7.0).all())


def test_digest_names_the_permutation() -> None:
    shape = (32, 1, 32)
    one = FakeEngine(amx_offsets(*shape), shape, 1, torch.bfloat16).probe()
    same = FakeEngine(amx_offsets(*shape), shape, 1, torch.float32).probe()
    other = FakeEngine(np.arange(2 * prod(shape)), shape, 1, torch.bfloat16).probe()
    assert one.digest() == same.digest() != other.digest()
    assert len(one.digest()) == 16


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), dtype=DTYPES)
def test_elements_that_overwrite_each_other_are_refused(seed: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(seed)
    offsets = rng.permutation(96)
    lost, kept = rng.choice(96, 2, replace=False)
    offsets[lost] = offsets[kept]
    engine = FakeEngine(offsets, (4, 2, 6), 1, dtype)
    with pytest.raises(LayoutError):
        engine.probe()
    assert bool((engine.cache == 7.0).all())


def test_quantised_rounded_and_moving_caches_are_refused() -> None:
    shape = (4, 2, 6)
    sizes: dict[str, Any] = {"block_tokens": 4, "heads": 2, "head_dim": 6}
    rounding = FakeEngine(np.arange(96), shape, 1, torch.bfloat16)
    with pytest.raises(LayoutError):
        probe_layout(lambda keys, values, slots: rounding.write(keys / 3, values, slots), rounding.cache[0], **sizes)
    calls = []
    moving = FakeEngine(np.arange(96), shape, 1, torch.float32)

    def move(keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        calls.append(slots)
        moving.write(keys, values, slots)
        if len(calls) > 1:  # as the first pass, then everything one further
            moving.cache.copy_(moving.cache.roll(1, dims=1))

    with pytest.raises(LayoutError):
        probe_layout(move, moving.cache[0], **sizes)
    with pytest.raises(LayoutError, match="uint8"):
        probe_layout(moving.write, torch.zeros(96, dtype=torch.uint8), **sizes)
    with pytest.raises(LayoutError, match="96 elements"):
        probe_layout(moving.write, torch.zeros(97), **sizes)


def test_a_write_that_depends_on_the_order_of_slots_fails_the_round_trip() -> None:
    """Only the random round trip writes out of order: an engine that ignores the slots is caught there."""
    engine = FakeEngine(np.arange(96), (4, 2, 6), 1, torch.float32)
    with pytest.raises(LayoutError, match="round trip"):
        probe_layout(
            lambda keys, values, slots: engine.write(keys, values, torch.arange(len(slots))),
            engine.cache[0],
            block_tokens=4,
            heads=2,
            head_dim=6,
        )


def test_blocks_of_another_size_are_refused() -> None:
    layout = FakeEngine(np.arange(96), (4, 2, 6), 1, torch.float32).probe()
    with pytest.raises(LayoutError, match="holds 95"):
        layout.unpack(torch.zeros(2, 95))


@given(seed=st.integers(0, 999), size=st.integers(1, 40))
def test_a_found_factorisation_is_always_the_table(seed: int, size: int) -> None:
    offsets = np.random.default_rng(seed).permutation(size)
    found = factor_strides(offsets)
    assert found is None or np.array_equal(found.offsets(), offsets)


def test_tables_without_strided_form_are_not_factored() -> None:
    assert factor_strides(np.array([0, 1, 3, 2])) is None
    assert factor_strides(np.array([3, 2, 1, 0])) is None  # torch has no negative strides
    assert factor_strides(np.array([0, 1, 2, 4, 5, 6, 3])) is None


def test_elements_are_only_moved_together_where_they_always_lie_together() -> None:
    assert StridedMap(4, (3, 8), (10, 1)).widened(2) == StridedMap(2, (3, 4), (5, 1))
    assert StridedMap(4, (3, 8), (10, 1)).widened(4) is None
    assert StridedMap(5, (3, 8), (10, 1)).widened(2) is None
    assert StridedMap(4, (3, 8), (11, 1)).widened(2) is None
    assert StridedMap(4, (3, 7), (10, 1)).widened(2) is None
    assert StridedMap(4, (3, 8), (1, 4)).widened(2) is None


def test_an_element_that_is_never_stored_is_distinguished_from_old_content() -> None:
    engine = FakeEngine(np.arange(96), (4, 2, 6), 1, torch.float32)

    def write_all_but_one(keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        kept = engine.cache[0, 50].clone()
        engine.write(keys, values, slots)
        engine.cache[0, 50] = kept

    with pytest.raises(LayoutError, match="not all that were"):
        probe_layout(write_all_but_one, engine.cache[0], block_tokens=4, heads=2, head_dim=6)


def test_one_entry_per_token_instead_of_keys_and_values() -> None:
    """MLA: the entry is K, and V has no width."""
    cache = torch.full((3, 4, 6), 7.0)

    def write(keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        assert values.shape == (len(slots), 1, 0)
        cache[1][slots] = keys[:, 0].flip(-1)

    layout = probe_layout(write, cache[1], block_tokens=4, heads=1, head_dim=6, has_values=False)
    assert bool((cache == 7.0).all())
    entries = torch.randn(8, 1, 6)
    cache[1:] = entries.view(2, 4, 6).flip(-1)
    keys, values = layout.unpack(cache[1:])
    assert torch.equal(keys, entries)
    assert values.shape == (8, 1, 0)
    assert not layout.has_values
