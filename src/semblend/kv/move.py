"""Move rows of K and V between paged memories, all runs and all layers at once: gather, rotate the keys, scatter.

Two memories and the layers' rotations go in, a ``Move`` comes out. Whatever a move reads (slots, run numbers, angles)
lies in one ``MoveTable``, so that it crosses to a device in one copy. ``PlainMove`` states the contract in torch and
serves where no kernel can; ``semblend.kv.move_kernel`` keeps the same contract in one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sembase.registry import load_target
from semblend.kv.rope import LayerRotations

_ALIGNMENT: Final = 16  # bytes; each part of a table begins at a multiple of it


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """Paged K and V, one view [blocks, block_tokens, heads, head_dim] per layer and side, in any order in memory.

    A slot is block * block_tokens + offset. Without ``values`` a token has one vector per layer, as in MLA.
    """

    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...] = ()

    def __post_init__(self) -> None:
        if not self.keys or len(self.values) not in (0, len(self.keys)):
            raise ValueError(f"{len(self.keys)} layers of keys, {len(self.values)} of values")
        for side in (self.keys, self.values):
            if len({(part.shape, part.stride(), part.dtype, part.device) for part in side}) > 1:
                raise ValueError("the layers of paged memory differ in shape, strides, dtype or device")
        first = self.keys[0]
        if first.ndim != 4 or any(side[0].stride(3) != 1 for side in (self.keys, self.values) if side):
            raise ValueError("paged memory is [blocks, block_tokens, heads, head_dim] with adjacent dimensions")
        if self.values:
            other = self.values[0]
            if (other.shape[:3], other.stride()[:3], other.dtype) != (first.shape[:3], first.stride()[:3], first.dtype):
                raise ValueError("keys and values of paged memory differ in blocks, heads, strides or dtype")

    @property
    def block_tokens(self) -> int:
        return int(self.keys[0].shape[1])

    @property
    def device(self) -> torch.device:
        device: torch.device = self.keys[0].device
        return device


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows that move by one shift, from slots of one memory to slots of another."""

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    shift: int


@dataclass(frozen=True, slots=True, eq=False)
class RotationForm:
    """Layers that one launch rotates: equal pairs, possibly of different frequencies. Zero frequencies only copy."""

    layers: NDArray[np.int32]
    kinds: NDArray[np.int32]  # of each layer, its row of ``frequencies``
    frequencies: NDArray[np.float64]  # [kinds, pairs]
    interleaved: bool
    first_dim: int

    @property
    def pairs(self) -> int:
        return int(self.frequencies.shape[1])


def rotation_forms(rotations: LayerRotations) -> tuple[RotationForm, ...]:
    """The layers by form. Models have one; layers without RoPE join it with frequencies of zero."""
    by_form: dict[tuple[bool, int, int], list[int]] = {}
    plain = [layer for layer in range(len(rotations)) if rotations[layer].is_identity]
    for layer in range(len(rotations)):
        rotation = rotations[layer]
        if not rotation.is_identity:
            key = (rotation.interleaved, rotation.first_dim, rotation.rotary_dim // 2)
            by_form.setdefault(key, []).append(layer)
    by_form.setdefault(next(iter(by_form), (False, 0, 0)), []).extend(plain)
    forms = []
    for (interleaved, first_dim, pairs), layers in by_form.items():
        rows: dict[bytes, int] = {}
        kinds = []
        for layer in sorted(layers):
            frequencies = rotations[layer].inverse_frequencies.double().cpu().numpy()
            row = frequencies if len(frequencies) else np.zeros(pairs)
            kinds.append(rows.setdefault(row.tobytes(), len(rows)))
        table = np.array([np.frombuffer(row) for row in rows]).reshape(len(rows), pairs)
        numbers = np.array(sorted(layers), np.int32)
        forms.append(RotationForm(numbers, np.array(kinds, np.int32), table, interleaved, first_dim))
    return tuple(forms)


class MoveTable:
    """Source slot, target slot and run number of every row, then cosine and sine by form, kind, run and pair."""

    def __init__(self, buffer: torch.Tensor, rows: int, runs: int, forms: tuple[RotationForm, ...]) -> None:
        self.buffer = buffer
        self.rows = rows
        self.runs = runs
        self._forms = forms
        self._starts = _starts(rows, runs, forms)

    @classmethod
    def pack(
        cls,
        moved: Sequence[Rows],
        forms: tuple[RotationForm, ...],
        allocate: Callable[[int], torch.Tensor] = lambda size: torch.empty(size, dtype=torch.uint8, device="cpu"),
    ) -> MoveTable:
        """The table of one move in host memory of ``allocate``, which takes a number of bytes."""
        rows = sum(len(part.sources) for part in moved)
        table = cls(allocate(_starts(rows, len(moved), forms)[-1]), rows, len(moved), forms)
        taken = 0
        sources, targets, run_of = (part.numpy() for part in (table.sources, table.targets, table.run_of))
        for run, part in enumerate(moved):
            end = taken + len(part.sources)
            sources[taken:end], targets[taken:end], run_of[taken:end] = part.sources, part.targets, run
            taken = end
        shifts = np.array([part.shift for part in moved], np.float64)
        for number, form in enumerate(forms):
            turned = form.frequencies[:, None, :] * shifts[None, :, None]  # in fp64: shifts reach 10^5
            cosine, sine = (part.numpy() for part in table.angles(number))
            np.cos(turned, out=cosine)
            np.sin(turned, out=sine)
        return table

    def to(self, device: torch.device) -> MoveTable:
        return MoveTable(self.buffer.to(device, non_blocking=True), self.rows, self.runs, self._forms)

    @property
    def sources(self) -> torch.Tensor:
        return self._part(0, torch.int64, self.rows)

    @property
    def targets(self) -> torch.Tensor:
        return self._part(1, torch.int64, self.rows)

    @property
    def run_of(self) -> torch.Tensor:
        return self._part(2, torch.int32, self.rows)

    def angles(self, form: int) -> tuple[torch.Tensor, torch.Tensor]:
        """fp32 cosine and sine [kinds, runs, pairs] of one form."""
        kinds, pairs = self._forms[form].frequencies.shape
        shape = (kinds, self.runs, pairs)
        cosine, sine = (
            self._part(3 + 2 * form + side, torch.float32, kinds * self.runs * pairs).view(shape) for side in (0, 1)
        )
        return cosine, sine

    def _part(self, number: int, dtype: torch.dtype, elements: int) -> torch.Tensor:
        start = self._starts[number]
        return self.buffer[start : start + elements * dtype.itemsize].view(dtype)


def _starts(rows: int, runs: int, forms: tuple[RotationForm, ...]) -> list[int]:
    """Where each part of a table begins, and the size of the whole, in bytes."""
    sizes = [8 * rows, 8 * rows, 4 * rows]
    for form in forms:
        sizes += [4 * form.frequencies.size * runs] * 2
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // _ALIGNMENT) * _ALIGNMENT)
    return starts


class Move(Protocol):
    """Moves the rows of a table in the layers of a range. No target slot may also be a source slot."""

    def __call__(self, table: MoveTable, layers: range) -> None: ...


class PlainMove:
    """The contract in torch: keys are rotated in fp32, values are copied bit for bit."""

    def __init__(self, source: Pages, target: Pages, forms: tuple[RotationForm, ...]) -> None:
        check_memories(source, target, forms)
        self._source = source
        self._target = target
        self._forms = forms

    def __call__(self, table: MoveTable, layers: range) -> None:
        at = _block_and_offset(table.sources, self._source)
        to = _block_and_offset(table.targets, self._target)
        run_of = table.run_of.long()
        for number, form in enumerate(self._forms):
            cosine, sine = table.angles(number)
            for layer, kind in zip(form.layers.tolist(), form.kinds.tolist(), strict=True):
                if layer in layers:
                    keys = _bits(self._source.keys[layer])[at]
                    rotated = _rotated(keys, self._source, form, cosine[kind][run_of], sine[kind][run_of])
                    _bits(self._target.keys[layer])[to] = rotated
                    if self._source.values:
                        _bits(self._target.values[layer])[to] = _bits(self._source.values[layer])[at]


def check_memories(source: Pages, target: Pages, forms: tuple[RotationForm, ...]) -> None:
    """``ValueError`` unless rows of one memory fit into the other and every layer has its rotation."""
    for mine, theirs in ((source.keys, target.keys), (source.values, target.values)):
        shapes = [(len(side), side[0].shape[2:], side[0].dtype) if side else None for side in (mine, theirs)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"rows of {shapes[0]} do not fit into {shapes[1]}")
    layers = sorted(layer for form in forms for layer in form.layers.tolist())
    if layers != list(range(len(source.keys))):
        raise ValueError(f"rotations of {len(layers)} layers for {len(source.keys)}")
    head_dim = source.keys[0].shape[3]
    for form in forms:
        if form.first_dim + 2 * form.pairs > head_dim:
            raise ValueError(f"{form.pairs} pairs from dimension {form.first_dim} on, but head_dim is {head_dim}")


def _block_and_offset(slots: torch.Tensor, pages: Pages) -> tuple[torch.Tensor, torch.Tensor]:
    return slots // pages.block_tokens, slots % pages.block_tokens


def _bits(memory: torch.Tensor) -> torch.Tensor:
    """Memory as torch can index it: not all operations know numbers of one byte."""
    return memory.view(torch.uint8) if memory.dtype.itemsize == 1 else memory


def _rotated(
    keys: torch.Tensor, pages: Pages, form: RotationForm, cosine: torch.Tensor, sine: torch.Tensor
) -> torch.Tensor:
    """Rows [n, heads, head_dim] rotated by the angles [n, pairs] of each, as they are stored."""
    if not form.pairs:
        return keys
    dtype = pages.keys[0].dtype
    plain = keys.view(dtype).float()
    end = form.first_dim + 2 * form.pairs
    middle = form.first_dim + form.pairs
    first, second = (
        (plain[..., form.first_dim : end : 2], plain[..., form.first_dim + 1 : end : 2])
        if form.interleaved
        else (plain[..., form.first_dim : middle], plain[..., middle:end])
    )
    cosine, sine = cosine[:, None], sine[:, None]
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    joined = torch.stack(turned, -1).flatten(-2) if form.interleaved else torch.cat(turned, -1)
    limit = largest(dtype)
    if limit is not None:
        joined = joined.clamp(-limit, limit)
    out = keys.clone()
    out[..., form.first_dim : end] = _bits(joined.to(dtype))
    return out


def largest(dtype: torch.dtype) -> float | None:
    """Where a rotated key is cut: a rotation makes numbers up to 1.42 times larger, and fp8 ends at 448 or less."""
    return float(torch.finfo(dtype).max) if dtype.itemsize == 1 else None


def move_between(source: Pages, target: Pages, forms: tuple[RotationForm, ...]) -> Move:
    """The kernel where one side lies on a device, else the plain version."""
    if source.device.type == "cpu" and target.device.type == "cpu":
        return PlainMove(source, target, forms)
    move: Move = load_target("semblend.kv.move_kernel:KernelMove")(source, target, forms)
    return move
