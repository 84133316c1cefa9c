"""Paged memories in every order engines use, with rows and rotations to move between them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton
from hypothesis import strategies as st
from triton.runtime import interpreter

from semblend.kv.move import Pages, Rows
from semblend.kv.rope import LayerRotations, Rotation, no_rotation

LAYOUTS = ("NHD", "HND", "sides", "blocks first", "one vector")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@cache
def interpreted_kernel() -> Any:
    """The kernel's module as Triton interprets it, beside the compiled one: Triton decides when it is imported."""
    found = importlib.util.find_spec("semblend.kv.move_kernel")
    assert found is not None
    assert found.origin is not None
    spec = importlib.util.spec_from_file_location("semblend.kv.move_kernel_interpreted", found.origin)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    assert triton.language is not None, "imported before, as in an engine: its own functions stay compiled"
    with mock.patch.dict(os.environ, {"TRITON_INTERPRET": "1"}):
        spec.loader.exec_module(module)
    return module


@contextmanager
def fp8_rounded_by_torch() -> Iterator[None]:
    """Triton's interpreter loses the carry when it rounds 1.97 to fp8; devices and torch do not."""
    theirs = interpreter._convert_float
    names = {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}

    def convert(numbers: Any, given: Any, wanted: Any, rounding: Any) -> Any:
        if str(given) == "fp32" and str(wanted) in names:
            rounded = torch.from_numpy(np.ascontiguousarray(numbers).view(np.float32)).to(names[str(wanted)])
            return rounded.view(torch.uint8).numpy().reshape(numbers.shape)
        return theirs(numbers, given, wanted, rounding)

    with mock.patch.object(interpreter, "_convert_float", convert):
        yield


def random_memory(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def pages_of(
    layout: str, layers: int, blocks: int, tokens: int, heads: int, dim: int, dtype: torch.dtype, seed: int
) -> tuple[torch.Tensor, Pages]:
    """The raw memory, and how it is seen."""
    if layout == "one vector":
        raw = random_memory((layers, blocks, tokens, heads, dim), dtype, seed)
        return raw, Pages(tuple(raw))
    if layout == "sides":
        raw = random_memory((layers, 2, blocks, tokens, heads, dim), dtype, seed)
        return raw, Pages(tuple(raw[:, 0]), tuple(raw[:, 1]))
    if layout == "NHD":
        raw = random_memory((layers, blocks, tokens, heads, 2 * dim), dtype, seed)
        view = raw
    elif layout == "HND":
        raw = random_memory((layers, blocks, heads, tokens, 2 * dim), dtype, seed)
        view = raw.transpose(2, 3)
    else:
        raw = random_memory((blocks, layers, tokens, heads, 2 * dim), dtype, seed)
        view = raw.transpose(0, 1)
    return raw, Pages(tuple(view[..., :dim]), tuple(view[..., dim:]))


@dataclass(frozen=True)
class Case:
    layout: str
    target_layout: str
    dtype: torch.dtype
    layers: int
    heads: int
    dim: int
    source_tokens: int
    target_tokens: int
    rotations: LayerRotations
    rows: tuple[Rows, ...]
    seed: int

    def source(self) -> tuple[torch.Tensor, Pages]:
        return self._pages(self.layout, self.source_tokens, self.seed)

    def target(self) -> tuple[torch.Tensor, Pages]:
        return self._pages(self.target_layout, self.target_tokens, self.seed + 1)

    def _pages(self, layout: str, tokens: int, seed: int) -> tuple[torch.Tensor, Pages]:
        blocks = -(-SLOTS // tokens)
        return pages_of(layout, self.layers, blocks, tokens, self.heads, self.dim, self.dtype, seed)


SLOTS = 96


@st.composite
def rotations(draw: st.DrawFn, layers: int, dim: int) -> LayerRotations:
    """Layers of one or two forms, some of other frequencies, some without RoPE."""
    rotary = draw(st.integers(1, dim // 2)) * 2
    first_dim = draw(st.integers(0, dim - rotary))
    interleaved = draw(st.booleans())
    chosen = []
    for _ in range(layers):
        kind = draw(st.sampled_from(("near", "far", "none", "other form")))
        theta = 1e2 if kind == "near" else 1e6
        frequencies = 1.0 / theta ** (torch.arange(0, rotary, 2) / rotary)
        if kind == "none":
            chosen.append(no_rotation())
        elif kind == "other form":
            chosen.append(Rotation(frequencies[:1], not interleaved, 0))
        else:
            chosen.append(Rotation(frequencies, interleaved, first_dim))
    return LayerRotations(chosen)


@st.composite
def cases(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...] = DTYPES) -> Case:
    layout = draw(st.sampled_from(LAYOUTS))
    paired = [other for other in LAYOUTS if (other == "one vector") == (layout == "one vector")]
    layers, dim = draw(st.integers(1, 3)), draw(st.sampled_from((2, 6, 8, 16, 20)))
    order = np.random.default_rng(draw(st.integers(0, 999))).permutation(SLOTS)
    rows, taken = [], 0
    for length in draw(st.lists(st.integers(1, 24), min_size=1, max_size=4)):
        sources = np.arange(length) + draw(st.integers(0, SLOTS - length))
        rows.append(Rows(sources, order[taken : taken + length].astype(np.int64), draw(st.integers(-9000, 9000))))
        taken += length
    return Case(
        layout,
        draw(st.sampled_from(paired)),
        draw(st.sampled_from(dtypes)),
        layers,
        draw(st.integers(1, 3)),
        dim,
        draw(st.sampled_from((1, 4, 16))),
        draw(st.sampled_from((4, 16, 32))),
        draw(rotations(layers, dim)),
        tuple(rows),
        draw(st.integers(0, 99)),
    )
