"""Where windows begin and end, counted in whatever units the embedder reads: word pieces of a model, or words."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

MAX_WINDOWS: Final = 64

Spans = NDArray[np.int64]


def overlapping_windows(length: int, size: int, overlap: int, max_windows: int = MAX_WINDOWS) -> Spans:
    """Rows ``(start, end)`` of windows of ``size`` units, overlapping by ``overlap``, that cover ``[0, length)``.

    The last window is moved back to end at ``length`` rather than cut short: the vector of a few words would be
    meaningless.
    """
    if not 0 <= overlap < size:
        raise ValueError("overlap must be at least 0 and below size")
    if length <= 0:
        return np.empty((0, 2), dtype=np.int64)
    starts = np.arange(0, max(1, length - overlap), size - overlap)
    starts[-1] = max(0, length - size)
    return spread(np.column_stack([starts, np.minimum(starts + size, length)]), max_windows)


def content_windows(hashes: NDArray[np.uint64], radius: int, max_windows: int = MAX_WINDOWS) -> Spans:
    """Rows ``(start, end)`` that divide ``[0, len(hashes))`` at local minima of the hashes of its content.

    The same passage is cut at the same places whatever precedes it, so its windows are equal sets of words and not
    merely overlapping ones. Windows have ``radius + 1`` to ``4 * radius`` units, about ``2 * radius`` on average; only
    the first and the last may be shorter.
    """
    length = len(hashes)
    if length == 0:
        return np.empty((0, 2), dtype=np.int64)
    cuts = [0, *_local_minima(hashes, radius).tolist(), length]
    edges = [0]
    for cut in cuts[1:]:
        # Text without a single minimum, such as one word repeated, is divided by length alone.
        pieces = -(-(cut - edges[-1]) // (4 * radius))
        edges += np.linspace(edges[-1], cut, pieces + 1).astype(int).tolist()[1:]
    return spread(np.column_stack([edges[:-1], edges[1:]]).astype(np.int64), max_windows)


def spread(spans: Spans, max_windows: int) -> Spans:
    """At most ``max_windows`` of the spans, evenly spread, the first and the last included."""
    if max_windows < 1:
        raise ValueError("max_windows must be positive")
    if len(spans) <= max_windows:
        return spans
    chosen = np.linspace(0, len(spans) - 1, max_windows).round().astype(np.int64)
    return np.asarray(spans[chosen])


def _local_minima(hashes: NDArray[np.uint64], radius: int) -> NDArray[np.int64]:
    """Positions smaller than the ``radius`` values before them and the ``radius`` values after them."""
    if len(hashes) < 2 * radius + 1:
        return np.empty(0, dtype=np.int64)
    around = np.lib.stride_tricks.sliding_window_view(hashes, 2 * radius + 1)
    middle = around[:, radius]
    alone = (around == middle[:, None]).sum(axis=1) == 1
    return np.flatnonzero((around.min(axis=1) == middle) & alone) + radius
