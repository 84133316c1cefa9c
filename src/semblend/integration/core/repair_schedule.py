"""Which answers are worth a repair, and which steps have room for a slice of one. The same on every engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.integration.core.session_returns import SessionReturns
from semblend.integration.shared_options import BUSY_STEPS_PER_SLICE, RepairPolicy

# Computed per step: the longest wait of a request that arrives in the meantime.
STEP_TOKENS: Final = 128
# Least likelihood that the session returns, under the policy "likely".
MIN_LIKELIHOOD: Final = 0.25
# Waiting repairs. The newest is computed first, because its session is the likeliest to return soon; beyond this many
# the oldest is given up.
MAX_JOBS: Final = 64


class RepairSchedule:
    """Counts busy steps, and the sessions that return after an answer. Costs nothing while repair is off."""

    def __init__(self, policy: RepairPolicy) -> None:
        self._policy = policy
        self._returns = SessionReturns()
        self._busy_steps = 0

    @property
    def is_on(self) -> bool:
        return self._policy != "off"

    def arrived(self, blocks: Iterable[bytes]) -> None:
        """A prompt arrived, with the public hashes of its full blocks."""
        if self.is_on:
            self._returns.arrived(blocks)

    def answered(self, last_block: bytes, end: str) -> None:
        """A request has ended, repaired or not. Its session may come back."""
        if self.is_on:
            self._returns.answered(last_block, end)

    def is_worth_it(self, end: str) -> bool:
        """Whether to repair a blended request whose answer ended like this."""
        return self.is_on and (self._policy != "likely" or self._returns.likelihood(end) >= MIN_LIKELIHOOD)

    def has_room(self, *, idle: bool) -> bool:
        """Whether this step may compute a slice. Called once per step while there is something to repair."""
        if idle:
            return True
        self._busy_steps += 1
        return self._policy == "likely" and self._busy_steps >= BUSY_STEPS_PER_SLICE

    def ran(self) -> None:
        """This step computes a slice."""
        self._busy_steps = 0


def continues(later: NDArray[np.uint32], earlier: NDArray[np.uint32]) -> bool:
    """Whether the repair of ``later`` repairs all of ``earlier``: a later turn of the same session."""
    length = len(earlier)
    return length <= len(later) and bool(np.array_equal(later[:length], earlier))
