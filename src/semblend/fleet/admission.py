"""Which donors are worth writing to the fleet: content that was seen before and that no replica could find.

Writing every prompt is a write storm: most content never comes back. Each prompt leaves marks in the directory, one of
eight anchors; a prompt that meets enough marks where it has to be computed all the same is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.fingerprint.anchors import WINDOW, select_anchors
from semblend.fingerprint.keyed import keyed_anchors
from semblend.fleet.directory.base import Directory
from semblend.fleet.keys import SpaceKeys

SAMPLED: Final = 8  # one of so many anchors is marked
ANCHOR_TOKENS: Final = (WINDOW + 1) // 2  # tokens per anchor, on average
MIN_SEEN_TOKENS: Final = 512


@dataclass(frozen=True, slots=True, eq=False)
class SeenContent:
    """Where a prompt repeats content that some request had before: the positions of its marks, ascending."""

    positions: NDArray[np.int64]

    def is_worth_writing(self, computed_from: int) -> bool:
        """Whether enough of what lies behind ``computed_from`` was seen. What lies before had KV here."""
        marks = len(self.positions) - int(np.searchsorted(self.positions, computed_from))
        return marks * SAMPLED * ANCHOR_TOKENS >= MIN_SEEN_TOKENS


def mark_content(directory: Directory, keys: SpaceKeys, tokens: NDArray[np.uint32]) -> SeenContent:
    """Leave the prompt's marks and see which were there. One round trip. Raises ``DirectoryError``."""
    anchors = select_anchors(tokens)
    keyed = keyed_anchors(anchors.hashes, keys.salts)
    chosen = np.flatnonzero(keyed % np.uint64(SAMPLED) == 0)
    if not len(chosen):
        return SeenContent(np.zeros(0, np.int64))
    # Text repeated within the prompt is marked once: it does not count as seen by itself.
    sampled, first = np.unique(keyed[chosen], return_index=True)
    were = np.asarray(directory.mark(keys.space, sampled))
    return SeenContent(np.sort(anchors.positions[chosen][first][were]).astype(np.int64))
