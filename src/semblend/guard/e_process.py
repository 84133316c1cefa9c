"""A test that may be evaluated after every observation: bounded readings in, evidence against "the mean is low" out.

A betting e-process: under the null (the mean, given the past, is at most ``mean``) no bet gains on average, so the
wealth reaches ``1/alpha`` with probability at most ``alpha``, ever (Ville). Bets of several sizes are mixed, and so are
starting times, with weight 1/(j(j+1)) for a start at reading j: a change after a long quiet time is found too, at the
price of 2 ln(j) more evidence. The state is eight floats and a count; a reading costs about 2 us.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

# Fractions of the largest bet that can never lose everything, 1/mean. Powers of two: one is within a factor 1.4 of
# best.
BETS: Final = (0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625)
LARGEST: Final = 1e300


@dataclass(slots=True)
class EProcess:
    """``wealth[i]`` is the wealth of bet i over all starting times so far. ``mean`` is the largest under the null."""

    mean: float
    wealth: list[float] = field(default_factory=lambda: [0.0] * len(BETS))
    count: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.mean < 1.0:
            raise ValueError(f"the mean under test must be between 0 and 1, not {self.mean}")
        if len(self.wealth) != len(BETS) or self.count < 0 or not all(0.0 <= each < math.inf for each in self.wealth):
            raise ValueError("wealth must be one finite number per bet, not negative")

    def observe(self, reading: float, mean: float | None = None) -> float:
        """Add a reading between 0 and 1 and return the evidence after it.

        ``mean`` is the largest mean of this reading under the null, if a lower one was known before the reading.
        """
        if not 0.0 <= reading <= 1.0:
            raise ValueError(f"a reading must be between 0 and 1, not {reading}")
        mean = self.mean if mean is None else mean
        if not 0.0 < mean <= self.mean:
            raise ValueError(f"the mean of a reading must be between 0 and {self.mean}, not {mean}")
        self.count += 1
        start = 1.0 / (self.count * (self.count + 1.0))
        surprise = reading / mean - 1.0
        for place, bet in enumerate(BETS):
            self.wealth[place] = min(LARGEST, (self.wealth[place] + start) * (1.0 + bet * surprise))
        return self.evidence

    @property
    def evidence(self) -> float:
        """The e-value: under the null its expectation is at most 1 at any stopping time."""
        return sum(self.wealth) / len(BETS) + 1.0 / (self.count + 1.0)
