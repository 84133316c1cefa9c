"""A plan as counts: positions it proposes, positions that hold the donor's tokens, blocks they fill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semblend.contract import ReusePlan

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Per recipient position: whether it is proposed and verified, from which donor and donor position."""

    proposed: Mask
    donor: Ids
    donor_position: Ids
    unverified_tokens: int

    def candidate_blocks(self, block_size: int) -> int:
        return int(_by_block(self.proposed, block_size).all(axis=1).sum())

    def eligible_blocks(self, block_size: int) -> int:
        """Candidate blocks that come from one donor at consecutive positions."""
        whole = _by_block(self.proposed, block_size).all(axis=1)
        donors = _by_block(self.donor, block_size)
        positions = _by_block(self.donor_position, block_size)
        one_donor = (donors == donors[:, :1]).all(axis=1)
        consecutive = (np.diff(positions, axis=1) == 1).all(axis=1)
        return int((whole & one_donor & consecutive).sum())

    @property
    def planned_tokens(self) -> int:
        return int(self.proposed.sum())


def cover(plan: ReusePlan, recipient: Ids, donors: Mapping[str, Ids]) -> Coverage:
    """Verifies the plan: a planned position counts only if the donor exists and holds the same token there."""
    proposed = np.zeros(len(recipient), np.bool_)
    donor = np.full(len(recipient), -1, np.int64)
    position = np.full(len(recipient), -1, np.int64)
    numbers = {donor_id: number for number, donor_id in enumerate(plan.donor_ids)}
    unverified = 0
    for run in plan.runs:
        available = donors.get(run.donor_id)
        target = np.arange(run.target_start, min(run.target_end, len(recipient)))
        source = target - run.shift
        if available is None:
            unverified += run.length
            continue
        inside = (source >= 0) & (source < len(available))
        target, source = target[inside], source[inside]
        same = recipient[target] == available[source]
        unverified += run.length - int(same.sum())
        proposed[target[same]] = True
        donor[target[same]] = numbers[run.donor_id]
        position[target[same]] = source[same]
    return Coverage(proposed, donor, position, unverified)


def _by_block(values: NDArray[np.generic], block_size: int) -> NDArray[np.generic]:
    count = len(values) // block_size
    return values[: count * block_size].reshape(count, block_size)
