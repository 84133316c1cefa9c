"""Read an engine's packed KV blocks back: probe once how a block is laid out, then unpack blocks bit for bit.

The engine's own write operation goes in, a BlockLayout comes out; nothing about any packing is assumed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray

from sembase.errors import SemBlendError

Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]

_DIGIT_BITS = {1: 3, 2: 7, 4: 7}  # by bytes of an element: integers up to 2**8 are exact in bfloat16, up to 2**3 in fp8
_UNWRITTEN = -1.0
_WIDE = {4: torch.int32, 8: torch.int64}


class LayoutError(SemBlendError, ValueError):
    """A block does not hold exactly the written elements, each once: its content cannot be read back."""


@dataclass(frozen=True, slots=True)
class StridedMap:
    """Offsets base + sum(digit * stride) over mixed-radix digits, outermost first."""

    base: int
    radices: tuple[int, ...]
    strides: tuple[int, ...]

    def offsets(self) -> NDArray[np.int64]:
        total = np.full(self.radices, self.base, dtype=np.int64)
        for axis, (radix, stride) in enumerate(zip(self.radices, self.strides, strict=True)):
            total += (np.arange(radix) * stride).reshape(-1, *[1] * (len(self.radices) - axis - 1))
        return total.reshape(-1)

    def widened(self, factor: int) -> StridedMap | None:
        """The same map in units of `factor` adjacent elements, or None if they are not always adjacent in the block."""
        rest = (self.base, *self.strides[:-1])
        if self.strides[-1] != 1 or self.radices[-1] % factor or any(number % factor for number in rest):
            return None
        return StridedMap(
            self.base // factor,
            (*self.radices[:-1], self.radices[-1] // factor),
            (*(stride // factor for stride in self.strides[:-1]), 1),
        )


def factor_strides(offsets: NDArray[np.int64]) -> StridedMap | None:
    """Write a table of offsets as strided digits, or None when it has no such form.

    The innermost digit is the longest arithmetic run: a run that reached into the next digit would mean that both
    have one common stride, and then they are one digit.
    """
    base = int(offsets[0])
    rest = offsets - base
    radices: list[int] = []
    strides: list[int] = []
    while rest.size > 1:
        stride = int(rest[1])
        breaks = np.flatnonzero(rest != stride * np.arange(rest.size))
        run = int(breaks[0]) if breaks.size else rest.size
        radix = next(number for number in range(run, 0, -1) if rest.size % number == 0)
        if radix == 1 or stride <= 0:
            return None
        radices.insert(0, radix)
        strides.insert(0, stride)
        rest = rest[::radix]
    found = StridedMap(base, tuple(radices) or (1,), tuple(strides) or (1,))
    return found if np.array_equal(found.offsets(), offsets) else None


@dataclass(frozen=True, slots=True, eq=False)
class BlockLayout:
    """Where each element of K and V lies in a raw block: offsets[side, (token, head, dim)], side 0 is K.

    There is no side 1 where a token has one entry instead of K and V (MLA).
    """

    block_tokens: int
    heads: int
    head_dim: int
    offsets: NDArray[np.int64]
    keys: StridedMap | None
    values: StridedMap | None

    @classmethod
    def from_offsets(cls, offsets: NDArray[np.int64], block_tokens: int, heads: int, head_dim: int) -> BlockLayout:
        table = offsets.reshape(-1, block_tokens * heads * head_dim)
        if not np.array_equal(np.sort(table, axis=None), np.arange(table.size)):
            raise LayoutError("the block is not a permutation of the written elements")
        values = factor_strides(table[1]) if len(table) > 1 else None
        return cls(block_tokens, heads, head_dim, table, factor_strides(table[0]), values)

    @property
    def has_values(self) -> bool:
        return len(self.offsets) > 1

    @property
    def is_strided(self) -> bool:
        """Both sides unpack as strided copies; otherwise by a gather, some six times slower in bf16."""
        return self.keys is not None and (self.values is not None or not self.has_values)

    def digest(self) -> str:
        """Name of this layout: blocks with equal digests can be read in the same way."""
        shape = f"{self.block_tokens}x{self.heads}x{self.head_dim}:".encode()
        return hashlib.sha256(shape + self.offsets.astype("<i8").tobytes()).hexdigest()[:16]

    def unpack(self, blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of raw blocks[n, ...], each [n * block_tokens, heads, head_dim], contiguous, in token order."""
        raw = blocks.flatten(1)  # a copy where a single block is a strided view
        if raw.shape[1] != self.offsets.size:
            raise LayoutError(f"a block holds {raw.shape[1]} elements, the layout {self.offsets.size}")
        keys = self._side(raw, 0, self.keys)
        return keys, self._side(raw, 1, self.values) if self.has_values else keys[..., :0]

    def _side(self, raw: torch.Tensor, side: int, strided: StridedMap | None) -> torch.Tensor:
        shape = (raw.shape[0] * self.block_tokens, self.heads, self.head_dim)
        if strided is None:
            index = torch.from_numpy(self.offsets[side]).to(raw.device)
            return raw.index_select(1, index).reshape(shape)
        return _copy_side(raw, strided).view(shape)


def _copy_side(raw: torch.Tensor, strided: StridedMap) -> torch.Tensor:
    """Contiguous copy of one side; elements that lie pairwise together are moved as one wider number (1.5x faster)."""
    for wide_bytes, wide in sorted(_WIDE.items(), reverse=True):
        factor = wide_bytes // raw.element_size()
        if factor < 2 or raw.stride(1) != 1 or raw.stride(0) % factor or raw.storage_offset() % factor:
            continue
        units = strided.widened(factor)
        if units is not None:
            return _copy_strided(raw.view(wide), units).view(raw.dtype)
    return _copy_strided(raw, strided)


def _copy_strided(raw: torch.Tensor, strided: StridedMap) -> torch.Tensor:
    view = raw.as_strided(
        (raw.shape[0], *strided.radices),
        (raw.stride(0), *(stride * raw.stride(1) for stride in strided.strides)),
        raw.storage_offset() + strided.base * raw.stride(1),
    )
    # not contiguous(): blocks that are in order already must not be handed out as a view of the cache
    return view.clone(memory_format=torch.contiguous_format)


def strided_side(cache: torch.Tensor, layout: BlockLayout, side: int) -> torch.Tensor:
    """K (side 0) or V of a cache[blocks, ...] as a view [blocks, block_tokens, heads, head_dim] of its memory.

    ``LayoutError`` if the elements of a block do not lie in strides.
    """
    logical = np.unravel_index(layout.offsets[side], tuple(cache.shape[1:]))
    places = sum(index * stride for index, stride in zip(logical, cache.stride()[1:], strict=True))
    shape = (layout.block_tokens, layout.heads, layout.head_dim)
    table = np.asarray(places).reshape(shape)
    first = int(table[0, 0, 0])
    steps = [int(table[tuple(int(axis == at) % size for at, size in enumerate(shape))]) - first for axis in range(3)]
    if not np.array_equal(StridedMap(first, shape, tuple(steps)).offsets(), table.reshape(-1)):
        raise LayoutError("the elements of a block do not lie in strides")
    return cache.as_strided((cache.shape[0], *shape), (cache.stride(0), *steps), cache.storage_offset() + first)


def probe_layout(
    write: Write, block: torch.Tensor, *, block_tokens: int, heads: int, head_dim: int, has_values: bool = True
) -> BlockLayout:
    """Find the layout of `block`, one scratch block of raw cache memory, and put its content back afterwards.

    Offsets count elements in the logical order of `block`, which may be a strided view of the cache's memory.
    `write` stores K and V, [n, heads, head_dim] each, at slots 0..block_tokens - 1 counted inside the block. Without
    values V has no width.
    """
    shape = (2 if has_values else 1, block_tokens, heads, head_dim)
    if block.numel() != prod(shape):
        raise LayoutError(f"expected a block of {prod(shape)} elements, not {tuple(block.shape)}")
    if not block.dtype.is_floating_point:
        raise LayoutError(f"a cache of {block.dtype} does not hold K and V as they were written")
    saved = block.clone()
    try:
        layout = BlockLayout.from_offsets(_probe_offsets(write, block, shape), block_tokens, heads, head_dim)
        _verify(layout, write, block, shape)
    finally:
        block.copy_(saved)
    return layout


def _probe_offsets(write: Write, block: torch.Tensor, shape: tuple[int, int, int, int]) -> NDArray[np.int64]:
    """Write every element's own number, one digit per pass, and see where in memory it appears."""
    numbers = torch.arange(prod(shape), device=block.device).view(shape)
    slots = torch.arange(shape[1], device=block.device)
    found = torch.zeros(block.numel(), dtype=torch.int64, device=block.device)
    bits = _DIGIT_BITS[block.element_size()]
    for shift in range(0, (block.numel() - 1).bit_length(), bits):
        digits = ((numbers >> shift) & ((1 << bits) - 1)).to(block.dtype)
        block.fill_(_UNWRITTEN)
        write(*_sides(digits), slots)
        read = block.reshape(-1).double()
        if not bool(((read == read.round()) & (read >= 0) & (read < 1 << bits)).all()):
            raise LayoutError("the block holds values that were not written, or not all that were")
        found |= read.long() << shift
    if int(found.max()) >= block.numel():
        raise LayoutError("the passes of the probe landed in different places")
    owner = found.cpu().numpy()
    offsets = np.full(owner.size, -1, dtype=np.int64)
    offsets[owner] = np.arange(owner.size)
    return offsets


def _verify(layout: BlockLayout, write: Write, block: torch.Tensor, shape: tuple[int, int, int, int]) -> None:
    """Round trip of random values, written in two calls and in mixed order as no probe pass was."""
    source = torch.Generator().manual_seed(0)
    keys, values = _sides(torch.randn(shape, generator=source, device="cpu").to(block.dtype).to(block.device))
    slots = torch.randperm(shape[1], generator=source, device="cpu").to(block.device)
    block.fill_(_UNWRITTEN)
    for part in slots.tensor_split((shape[1] // 3,)):
        write(keys[part], values[part], part)
    read_keys, read_values = layout.unpack(block.reshape(1, -1))
    if not (torch.equal(read_keys.float(), keys.float()) and torch.equal(read_values.float(), values.float())):
        raise LayoutError("random values did not survive the round trip through the block")


def _sides(entries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return entries[0], entries[1] if len(entries) > 1 else entries[0][..., :0]
