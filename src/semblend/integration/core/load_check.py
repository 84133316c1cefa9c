"""Verifies loaded KV against the model before it is used: positions of a load in, the first mismatch out.

In the first layer K and V depend on the token and its position alone. A key that was moved by a wrong distance, or KV
of another text under a donor's name, shows there at once. Some positions of each run are computed up to that layer in
one short forward pass; nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.integration.core.probes import first_layer
from semblend.plan.selection import as_ranges

if TYPE_CHECKING:
    from semblend.integration.core.open_request import OpenRequest

# Squared, relative. bf16 rounds by 1e-5, an 8-bit cache by 1e-3; keys one position off differ by 0.03 and more.
TOLERANCE: Final = 0.005


def find_mismatch(request: OpenRequest, positions: NDArray[np.int64]) -> str | None:
    """None when the cache holds at ``positions`` what the model computes; else where and by how much it differs."""
    ranges = as_ranges(positions)
    parts = [request.read(0, part) for part in ranges]
    held = (torch.cat([keys for keys, _ in parts]), torch.cat([values for _, values in parts]))
    for name, loaded, expected in zip(("K", "V"), held, first_layer(request, ranges), strict=True):
        found = loaded.float().reshape(len(positions), -1)
        wanted = expected.float().reshape(len(positions), -1)
        energy = wanted.square().sum(dim=1)
        off = (found - wanted).square().sum(dim=1) / torch.maximum(energy, 1e-3 * energy.mean())
        worst = int(off.argmax())
        if not float(off[worst]) <= TOLERANCE:  # NaN is a mismatch, too
            at, by = int(positions[worst]), float(off[worst])
            return f"first-layer {name} at position {at} differs from the model: relative squared error {by:.3g}"
    return None
