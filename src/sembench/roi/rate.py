"""The reuse rate: the expected fraction of requests served with reuse, and its uncertainty."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError
from sembench.report.estimates import wilson

_Z95: Final = 1.959964
_COUNTED: Final = re.compile(r"^\s*(\d+)\s*/\s*(\d+)\s*$")


@dataclass(frozen=True, slots=True)
class ReuseRate:
    """A fraction with its 95 % interval. Without an interval it is taken as exact, which ``source`` states."""

    value: float
    low: float | None
    high: float | None
    source: str
    reused: int | None = None
    requests: int | None = None

    def draw(self, random: np.random.Generator, draws: int) -> NDArray[np.float64]:
        """From counts: a beta posterior with Jeffreys prior. From an interval: normal on the logit, clipped."""
        if self.reused is not None and self.requests is not None:
            return random.beta(self.reused + 0.5, self.requests - self.reused + 0.5, draws)
        if self.low is None or self.high is None:
            return np.full(draws, self.value)
        spread = (_logit(self.high) - _logit(self.low)) / (2 * _Z95)
        drawn: NDArray[np.float64] = 1 / (1 + np.exp(-random.normal(_logit(self.value), spread, draws)))
        return drawn


def counted(reused: int, requests: int, source: str) -> ReuseRate:
    found = wilson(reused, requests) if reused <= requests else None
    if found is None:
        raise ConfigurationError(f"invalid reuse rate {reused}/{requests}")
    return ReuseRate(found.value, found.low, found.high, source, reused, requests)


def parse_rate(text: str, interval: tuple[float, float] | None) -> ReuseRate:
    """``31/120`` or ``0.26``, the latter with or without an interval."""
    if match := _COUNTED.match(text):
        if interval is not None:
            raise ConfigurationError("--reuse-rate K/N has its own interval; omit --reuse-rate-interval")
        return counted(int(match[1]), int(match[2]), "given as counts")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise ConfigurationError(f"--reuse-rate {text}: expected a fraction between 0 and 1, or counts like 31/120")
    if interval is None:
        return ReuseRate(value, None, None, "given without an interval, taken as exact")
    if not interval[0] <= value <= interval[1]:
        raise ConfigurationError(f"--reuse-rate {text} is outside its interval {interval[0]} to {interval[1]}")
    return ReuseRate(value, interval[0], interval[1], "given with its interval")


def _logit(share: float) -> float:
    held = min(max(share, 1e-4), 1 - 1e-4)
    return math.log(held / (1 - held))
