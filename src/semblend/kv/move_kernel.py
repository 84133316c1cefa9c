"""The contract of ``semblend.kv.move`` as one Triton launch for all runs and layers of a form.

A program moves 16 rows of one layer: it reads their slots and run numbers, then head by head rotates K in fp32 and
copies V. Layers are found by address, so they may lie in any allocation; the source may be the engine's own cache, a
staging buffer, or pinned host memory, which a device reads at its host address.

Triton comes with an engine; only this module imports it, and ``move_between`` imports this module only for a device.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl

from semblend.kv.move import MoveTable, Pages, RotationForm, check_memories, largest

ROWS: Final = 16  # per program
THREADS: Final = 128  # then each of them moves 8 numbers, 128 bits of bf16, at a time
_ALIGNED_BYTES: Final = 16  # one access of 128 bits
_ELEMENTS: Final[dict[torch.dtype, Any]] = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float8_e4m3fn: tl.float8e4nv,
    torch.float8_e5m2: tl.float8e5,
    torch.float8_e4m3fnuz: tl.float8e4b8,
}


@triton.jit
def _copy(source, target, live, first: tl.constexpr, count: tl.constexpr, step: tl.constexpr):
    for begin in tl.static_range(0, count, step):
        dim = begin + tl.arange(0, step)
        mask = live[:, None] & (dim < count)[None, :]
        tl.store(target[:, None] + first + dim, tl.load(source[:, None] + first + dim, mask=mask), mask=mask)


@triton.jit
def _layer_start(entry, ELEMENT: tl.constexpr, ALIGNED: tl.constexpr):
    start = tl.load(entry).to(tl.pointer_type(ELEMENT))
    if ALIGNED:
        start = tl.multiple_of(start, 16)
    return start


# Numbers that differ from move to move select no other machine code: nothing is compiled while requests are served.
@triton.jit(do_not_specialize=["rows", "runs"], do_not_specialize_on_alignment=["layer_table"])
def move_rows(
    layer_table, source_addresses, target_addresses, sources, targets, run_of, cosine, sine,
    rows, runs, value_at, source_block, source_token, source_head, target_block, target_token, target_head,
    ELEMENT: tl.constexpr, ALIGNED: tl.constexpr, SOURCE_TOKENS: tl.constexpr, TARGET_TOKENS: tl.constexpr,
    HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, FIRST: tl.constexpr, PAIRS: tl.constexpr,
    INTERLEAVED: tl.constexpr, LIMIT: tl.constexpr, ROWS: tl.constexpr,
    PAIRS_PADDED: tl.constexpr, BEFORE_STEP: tl.constexpr, AFTER_STEP: tl.constexpr, VALUE_STEP: tl.constexpr,
):  # fmt: skip
    """``layer_table`` holds layer and kind; the addresses of V begin ``value_at`` entries after those of K."""
    layer = tl.load(layer_table + tl.program_id(1) * 2)
    kind = tl.load(layer_table + tl.program_id(1) * 2 + 1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = row < rows
    at = tl.load(sources + row, mask=live, other=0)
    to = tl.load(targets + row, mask=live, other=0)
    run = tl.load(run_of + row, mask=live, other=0)
    source_row = (at // SOURCE_TOKENS) * source_block + (at % SOURCE_TOKENS) * source_token
    target_row = (to // TARGET_TOKENS) * target_block + (to % TARGET_TOKENS) * target_token
    key_from = _layer_start(source_addresses + layer, ELEMENT, ALIGNED) + source_row
    key_to = _layer_start(target_addresses + layer, ELEMENT, ALIGNED) + target_row
    if VALUE_DIM > 0:
        value_from = _layer_start(source_addresses + value_at + layer, ELEMENT, ALIGNED) + source_row
        value_to = _layer_start(target_addresses + value_at + layer, ELEMENT, ALIGNED) + target_row
    if PAIRS > 0:
        pair = tl.arange(0, PAIRS_PADDED)
        in_pair = live[:, None] & (pair < PAIRS)[None, :]
        angle = (kind * runs + run)[:, None] * PAIRS + pair[None, :]
        cos = tl.load(cosine + angle, mask=in_pair, other=1.0)
        sin = tl.load(sine + angle, mask=in_pair, other=0.0)
    for head in range(HEADS):
        k = key_from + head * source_head
        o = key_to + head * target_head
        if PAIRS > 0:
            if INTERLEAVED:
                dim = tl.arange(0, 2 * PAIRS_PADDED)
                in_dim = live[:, None] & (dim < 2 * PAIRS)[None, :]
                both = tl.load(k[:, None] + FIRST + dim[None, :], mask=in_dim, other=0.0).to(tl.float32)
                first, second = tl.split(tl.reshape(both, (ROWS, PAIRS_PADDED, 2)))
            else:
                first = tl.load(k[:, None] + FIRST + pair[None, :], mask=in_pair, other=0.0).to(tl.float32)
                second = tl.load(k[:, None] + FIRST + PAIRS + pair[None, :], mask=in_pair, other=0.0).to(tl.float32)
            first_out = first * cos - second * sin
            second_out = second * cos + first * sin
            if LIMIT > 0:
                first_out = tl.minimum(tl.maximum(first_out, -LIMIT), LIMIT)
                second_out = tl.minimum(tl.maximum(second_out, -LIMIT), LIMIT)
            if INTERLEAVED:
                joined = tl.reshape(tl.join(first_out, second_out), (ROWS, 2 * PAIRS_PADDED)).to(ELEMENT)
                tl.store(o[:, None] + FIRST + dim[None, :], joined, mask=in_dim)
            else:
                tl.store(o[:, None] + FIRST + pair[None, :], first_out.to(ELEMENT), mask=in_pair)
                tl.store(o[:, None] + FIRST + PAIRS + pair[None, :], second_out.to(ELEMENT), mask=in_pair)
        if FIRST > 0:
            _copy(k, o, live, 0, FIRST, BEFORE_STEP)
        if FIRST + 2 * PAIRS < KEY_DIM:
            _copy(k, o, live, FIRST + 2 * PAIRS, KEY_DIM - FIRST - 2 * PAIRS, AFTER_STEP)
        if VALUE_DIM > 0:
            _copy(value_from + head * source_head, value_to + head * target_head, live, 0, VALUE_DIM, VALUE_STEP)


def constants(form: RotationForm, source: Pages, target: Pages, *, aligned: bool) -> dict[str, Any]:
    """What the kernel is compiled for: dtype, shapes and form of a move."""
    keys = source.keys[0]
    _, _, heads, key_dim = (int(size) for size in keys.shape)
    value_dim = int(source.values[0].shape[3]) if source.values else 0
    after = key_dim - form.first_dim - 2 * form.pairs
    limit = largest(keys.dtype)
    return {
        "ELEMENT": _ELEMENTS[keys.dtype],
        "ALIGNED": aligned,
        "SOURCE_TOKENS": source.block_tokens,
        "TARGET_TOKENS": target.block_tokens,
        "HEADS": heads,
        "KEY_DIM": key_dim,
        "VALUE_DIM": value_dim,
        "FIRST": form.first_dim,
        "PAIRS": form.pairs,
        "INTERLEAVED": form.interleaved,
        "LIMIT": 0.0 if limit is None else limit,
        "ROWS": ROWS,
        "PAIRS_PADDED": _padded(form.pairs),
        "BEFORE_STEP": _step(form.first_dim),
        "AFTER_STEP": _step(after),
        "VALUE_STEP": _step(value_dim),
    }


def _padded(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()


def _step(count: int) -> int:
    """Dimensions copied at a time: more of them would not fit into registers."""
    return min(128, _padded(count))


class KernelMove:
    """A ``Move`` between two fixed memories: what does not change between moves is put on the device once."""

    def __init__(self, source: Pages, target: Pages, forms: tuple[RotationForm, ...]) -> None:
        check_memories(source, target, forms)
        if source.keys[0].dtype not in _ELEMENTS:
            raise ValueError(f"no kernel moves rows of {source.keys[0].dtype}")
        device = target.device if source.device.type == "cpu" else source.device
        addresses = [_addresses(pages) for pages in (source, target)]
        size = source.keys[0].dtype.itemsize
        aligned = not any(address % _ALIGNED_BYTES for side in addresses for address in side.tolist())
        aligned = aligned and not any(step * size % _ALIGNED_BYTES for step in (*_steps(source), *_steps(target)))
        self._forms = forms
        self._value_at = len(source.keys)
        self._source_addresses, self._target_addresses = (part.to(device) for part in addresses)
        self._layer_tables = tuple(_layer_table(form).to(device) for form in forms)
        self._steps = (*_steps(source), *_steps(target))
        self._constants = tuple(constants(form, source, target, aligned=aligned) for form in forms)

    def __call__(self, table: MoveTable, layers: range) -> None:
        for number, form in enumerate(self._forms):
            begin, end = (int(at) for at in form.layers.searchsorted((layers.start, layers.stop)))
            if begin == end:
                continue
            cosine, sine = table.angles(number)
            launch(
                (max(1, triton.cdiv(table.rows, ROWS)), end - begin),
                (
                    self._layer_tables[number][2 * begin :],
                    self._source_addresses,
                    self._target_addresses,
                    table.sources,
                    table.targets,
                    table.run_of,
                    cosine,
                    sine,
                    table.rows,
                    table.runs,
                    self._value_at,
                    *self._steps,
                ),
                self._constants[number],
            )


def launch(grid: tuple[int, int], arguments: tuple[Any, ...], compiled_for: dict[str, Any]) -> None:
    warps = THREADS // (64 if torch.version.hip else 32)
    move_rows[grid](*arguments, **compiled_for, num_warps=warps, enable_fp_fusion=True)


def _layer_table(form: RotationForm) -> torch.Tensor:
    """Number and kind of each layer, one after the other."""
    return torch.stack((torch.from_numpy(form.layers), torch.from_numpy(form.kinds)), 1).flatten()


def _addresses(pages: Pages) -> torch.Tensor:
    """Where each layer begins: all of K, then all of V."""
    return torch.tensor([part.data_ptr() for part in (*pages.keys, *pages.values)], dtype=torch.int64, device="cpu")


def _steps(pages: Pages) -> tuple[int, int, int]:
    block, token, head, _ = pages.keys[0].stride()
    return int(block), int(token), int(head)
