"""What selection rules on trial read of an item: one row per layer for each signal, one column per reused position.

``question`` (mean), ``norm`` (root of the mean square): attention of the question's last queries. ``digest``: the same
by queries that saw a tenth of the keys. ``repeat``: the most that a repetition of the donor's text attends to a token.
These could be had when a request is served. ``read``
(what the answers attend to) and ``drift`` (distance from the cold KV) need the cold prefill and serve as oracles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semblend.plan.selection import Evidence

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Signals(Evidence):
    """``layered``: one row per layer for each signal's name. ``deviation``: relative distance of the loaded K and V in
    layer 1 from those a cold prefill computes. ``middle``: layers by how much of what the answer needs their question
    attention finds, as ranked on other items.
    """

    layered: Mapping[str, Array] = field(kw_only=True)
    deviation: Array = field(kw_only=True)
    middle: tuple[int, ...] = field(default=(), kw_only=True)

    def of(self, name: str, layers: Sequence[int] = ()) -> NDArray[np.float64]:
        """The signal of each position, mean over these layers, or over all."""
        rows = self.layered[name]
        mean: NDArray[np.float64] = (rows[list(layers)] if layers else rows).mean(axis=0, dtype=np.float64)
        return mean
