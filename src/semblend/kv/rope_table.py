"""Read a layer's rotation from the engine's own cos/sin table, whatever scaling made it.

A rotary table holds ``scale * cos(t * f)`` and ``scale * sin(t * f)`` for position t and each pair's inverse frequency
f. Keys move by the quotient of two rows, in which ``scale`` (YaRN's and longrope's mscale) cancels: the rotation by
``f`` times the distance. So f is all that is needed, and it is read from the rows 1, 2, 4, 8, ...: fp32 multiplies f by
a power of two without rounding, and each doubling halves the error. A table that is not of this form is refused.
"""

from __future__ import annotations

from math import pi
from typing import Final

import torch

from sembase.errors import SemBlendError
from semblend.kv.rope import Rotation

# Rounding of the stored cosine, and of the product t * f in fp32 (up to 2^-24 of it, twice: factor and product).
_ROUNDING: Final = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
_PRODUCT_ROUNDING: Final = 2.0**-22
_CHECKED_ROWS: Final = 1024


class RotaryTableError(SemBlendError):
    """The table is not the table of a rotation by a fixed angle per position."""


def rotation_from_table(table: torch.Tensor, *, interleaved: bool, first_dim: int = 0) -> Rotation:
    """The rotation of a table [positions, rotary_dim] whose first half is cosine, whose second half is sine."""
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 2 or table.shape[1] % 2:
        raise RotaryTableError(f"a rotary table has two or more rows of cosines and sines, not {tuple(table.shape)}")
    tolerance = _ROUNDING.get(table.dtype)
    if tolerance is None:
        raise RotaryTableError(f"a rotary table of {table.dtype} cannot be read")
    scale = _rows(table, [0])[0][0]
    if not bool((scale > 0).all()):
        raise RotaryTableError("position 0 of the rotary table is rotated already")
    frequencies = _frequencies(table)
    _check(table, scale, frequencies, tolerance)
    return Rotation(frequencies.float(), interleaved, first_dim)


def _rows(table: torch.Tensor, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of these rows only: tables of long contexts take hundreds of megabytes."""
    cosine, sine = table.detach()[rows].cpu().double().chunk(2, dim=-1)
    return cosine, sine


def _frequencies(table: torch.Tensor) -> torch.Tensor:
    rows = [1 << bit for bit in range((table.shape[0] - 1).bit_length())]
    cosine, sine = _rows(table, rows)
    angles = torch.atan2(sine, cosine)
    found = angles[0]
    for row, angle in zip(rows[1:], angles[1:], strict=True):
        found = found + torch.remainder(angle - found * row + pi, 2 * pi).sub(pi) / row
    return found


def _check(table: torch.Tensor, scale: torch.Tensor, frequencies: torch.Tensor, tolerance: float) -> None:
    """Rows over the whole table must be what the frequencies say."""
    rows = torch.linspace(0, table.shape[0] - 1, min(_CHECKED_ROWS, table.shape[0]), dtype=torch.float64).long()
    cosine, sine = _rows(table, rows.tolist())
    angles = rows.double()[:, None] * frequencies[None]
    allowed = scale * (tolerance + rows.double()[:, None] * frequencies.abs()[None] * _PRODUCT_ROUNDING)
    for name, found, expected in (("cosine", cosine, angles.cos()), ("sine", sine, angles.sin())):
        off = (found - scale * expected).abs() - allowed
        if not bool((off <= 0).all()):
            row, pair = divmod(int(off.argmax()), off.shape[1])
            raise RotaryTableError(
                f"the {name} of pair {pair} at position {int(rows[row])} is {float(found[row, pair]):.6f}, not "
                f"{float(scale[pair] * expected[row, pair]):.6f}: angles do not grow in proportion to the position"
            )
