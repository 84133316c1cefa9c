"""How often a block was asked for lately, in fixed memory: a count-min sketch of 4-bit counts that halves as it ages.

Four rows with one byte per cell: 4 bytes per block of capacity, between 256 B and 16 MB whatever the trace.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel_part


class Sketch(NamedTuple):
    cells: NDArray[np.uint8]  # four rows of a power of two
    additions: NDArray[np.int64]  # [since the last halving, at which to halve]


def make_sketch(blocks: int) -> Sketch:
    width = 64
    while width < min(blocks, 1 << 22):
        width *= 2
    return Sketch(np.zeros((4, width), np.uint8), np.array([0, 10 * width], np.int64))


@kernel_part
def _cell(row: int, node: int, width: int) -> int:
    mixed = (node + 1) * (2654435761 + 2 * row * 40503) & 0xFFFFFFFF
    mixed ^= mixed >> 15
    mixed = mixed * 2246822519 & 0xFFFFFFFF
    return int((mixed ^ mixed >> 13) & (width - 1))


@kernel_part
def count_of(sketch: Sketch, node: int) -> int:
    width = sketch.cells.shape[1]
    least = 255
    for row in range(4):
        least = min(least, int(sketch.cells[row, _cell(row, node, width)]))
    return least


@kernel_part
def add_to(sketch: Sketch, node: int) -> None:
    """One more (conservative update, saturating at 15); after ten additions a cell all counts halve."""
    least = count_of(sketch, node)
    if least >= 15:
        return
    width = sketch.cells.shape[1]
    for row in range(4):
        cell = _cell(row, node, width)
        if sketch.cells[row, cell] == least:
            sketch.cells[row, cell] = least + 1
    sketch.additions[0] += 1
    if sketch.additions[0] >= sketch.additions[1]:
        sketch.additions[0] //= 2
        for row in range(4):
            for cell in range(width):
                sketch.cells[row, cell] >>= 1
