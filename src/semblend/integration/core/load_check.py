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

from semblend.integration.core.probes import compared, first_layer
from semblend.plan.selection import as_ranges

if TYPE_CHECKING:
    from semblend.integration.core.open_request import OpenRequest

# Squared errors. The first is relative to the part of K or V that differs between positions: keys one position off
# differ by 0.03 and more of it. The second is relative to the whole, which a bias of the projection can make thousands
# of times larger: a few roundings of the cache's dtype, but no other token.
TOLERANCE: Final = 0.005
_ROUNDINGS: Final = 4.0


def find_mismatch(
    request: OpenRequest, positions: NDArray[np.int64], eight_bits: torch.dtype | None = None
) -> str | None:
    """None when the cache holds at ``positions`` what the model computes; else where and by how much it differs.

    ``eight_bits`` is the dtype of a quantised cache, whose K and V the request gives in the model's dtype.
    """
    ranges = as_ranges(positions)
    parts = [request.read(0, part) for part in ranges]
    held = (torch.cat([keys for keys, _ in parts]), torch.cat([values for _, values in parts]))
    for name, (loaded, expected) in compared(held, first_layer(request, ranges)).items():
        off = _deviations(loaded, expected.reshape(loaded.shape), eight_bits or loaded.dtype)
        worst = int(off.amax(dim=1).argmax())
        if not bool((off[worst] <= 1.0).all()):  # NaN is a mismatch, too
            head, at = int(off[worst].argmax()), int(positions[worst])
            return (
                f"first-layer {name} at position {at} differs from the model: "
                f"squared error of head {head} is {float(off[worst, head]):.3g} times the limit"
            )
    return None


def _deviations(loaded: torch.Tensor, expected: torch.Tensor, kept: torch.dtype) -> torch.Tensor:
    """[positions, heads]: squared errors in units of what is allowed."""
    found, wanted = loaded.float(), expected.float()
    rounding = _ROUNDINGS * max(_unit_roundoff(kept), _unit_roundoff(torch.bfloat16)) ** 2
    own = (wanted - wanted.mean(dim=0)).square().sum(dim=2).mean(dim=0)
    allowed = TOLERANCE * own + rounding * wanted.square().sum(dim=2)
    return (found - wanted).square().sum(dim=2) / allowed.clamp_min(torch.finfo(torch.float32).tiny)


def _unit_roundoff(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).eps) / 2
