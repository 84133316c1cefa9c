"""The part of a donor that a plan would use: a plan and suggested donors in, whole pages to fetch out.

A donor of which only a part is fetched keeps its length. Tokens that were not fetched are replaced by an id that no
prompt can have, so nothing of them is ever planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import Run
from semblend.fleet.donor_object import PAGE_TOKENS, ObjectForm, RowShape, pages_touched
from semblend.fleet.suggestions import RemoteDonor

NO_TOKEN: Final = np.uint32((1 << 31) - 1)  # engines refuse prompts with ids beyond their vocabulary
WHOLE_FRACTION: Final = 0.9  # of a donor: from here on it is fetched whole and serves other prompts, too


@dataclass(frozen=True, slots=True, eq=False)
class DonorPart:
    """``ranges`` are ascending ranges of tokens, in whole pages; empty: the whole donor."""

    donor: RemoteDonor
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def tokens(self) -> NDArray[np.uint32]:
        """The donor's tokens, as long as the donor."""
        if not self.ranges:
            return self.donor.tokens
        masked = np.full_like(self.donor.tokens, NO_TOKEN)
        for start, end in self.ranges:
            masked[start:end] = self.donor.tokens[start:end]
        return masked

    def read_bytes(self, shape: RowShape) -> int:
        form = ObjectForm(shape, len(self.donor.tokens))
        if not self.ranges:
            return form.total_bytes
        return form.head_bytes + sum(end - start for start, end in self.ranges) * shape.token_bytes


def used_parts(
    donors: Sequence[RemoteDonor], runs: Sequence[Run], page_tokens: int = PAGE_TOKENS, margin_tokens: int = 0
) -> list[DonorPart]:
    """What ``runs`` load of each donor, in whole pages; donors that no run names are left out.

    ``margin_tokens`` before each run are read as well. A run begins behind equal tokens that are recomputed; without
    those it would begin later still.
    """
    parts = []
    for donor in donors:
        used = [
            (max(0, run.donor_start - margin_tokens), run.donor_start + run.length)
            for run in runs
            if run.donor_id == donor.donor_id
        ]
        if not used:
            continue
        size = len(donor.tokens)
        pages = pages_touched(used, page_tokens)
        ranges = tuple((first * page_tokens, min(end * page_tokens, size)) for first, end in pages)
        covered = sum(end - start for start, end in ranges)
        parts.append(DonorPart(donor) if covered >= WHOLE_FRACTION * size else DonorPart(donor, ranges))
    return parts
