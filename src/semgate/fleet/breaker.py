"""Circuit breaker of one replica: faults in, whether requests may be sent there out.

Closed until ``faults_to_open`` faults in a row, or too large a fraction of the last ``window`` outcomes; then open for
a time that doubles with each failed trial; then half-open: one trial request decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sembase.errors import ConfigurationError

BreakerState = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOptions:
    faults_to_open: int = 3
    window: int = 20
    fault_fraction_to_open: float = 0.5
    open_s: float = 2.0
    max_open_s: float = 60.0
    trial_s: float = 30.0

    def __post_init__(self) -> None:
        if self.faults_to_open < 1 or not 2 <= self.window <= 63 or not 0.0 < self.fault_fraction_to_open <= 1.0:
            raise ConfigurationError("a breaker needs faults_to_open >= 1, window 2 to 63, fault fraction in (0, 1]")
        if not 0.0 < self.open_s <= self.max_open_s or self.trial_s <= 0.0:
            raise ConfigurationError("a breaker needs 0 < open_s <= max_open_s and trial_s > 0")


class Breaker:
    """The caller passes the time, so that every transition can be tested without waiting."""

    def __init__(self, options: BreakerOptions | None = None) -> None:
        self._options = options or BreakerOptions()
        self._outcomes = 1  # bits, newest lowest, 1 for a fault, under a leading marker bit
        self._in_a_row = 0
        self._opened_at_s: float | None = None
        self._open_for_s = self._options.open_s
        self._trial_since_s: float | None = None
        self.opened = 0

    def state(self, now_s: float) -> BreakerState:
        if self._opened_at_s is None:
            return "closed"
        return "open" if now_s - self._opened_at_s < self._open_for_s else "half_open"

    def trial_due(self, now_s: float) -> bool:
        """Half-open and no trial is running. A trial that never ends is abandoned after ``trial_s``."""
        if self.state(now_s) != "half_open":
            return False
        return self._trial_since_s is None or now_s - self._trial_since_s >= self._options.trial_s

    def began(self, now_s: float) -> bool:
        """A request was sent; returns whether it is the trial of a half-open breaker."""
        if not self.trial_due(now_s):
            return False
        self._trial_since_s = now_s
        return True

    def abandoned(self) -> None:
        """The trial ended without a result: the next request is a trial."""
        self._trial_since_s = None

    def succeeded(self, now_s: float, began_s: float | None = None) -> None:
        """A success of a request sent before the breaker opened is ignored (``began_s`` None: it is the trial, or the
        breaker never opened)."""
        if self._opened_at_s is not None and began_s is not None:
            if began_s >= self._opened_at_s:
                self._close()
        elif self.state(now_s) == "half_open":
            self._close()
        elif self._opened_at_s is None:
            self._in_a_row = 0
            self._push(0)

    def failed(self, now_s: float) -> None:
        state = self.state(now_s)
        if state == "half_open":
            self._open_for_s = min(self._open_for_s * 2.0, self._options.max_open_s)
            self._open(now_s)
        elif state == "closed":
            self._in_a_row += 1
            self._push(1)
            if self._in_a_row >= self._options.faults_to_open or self._too_many():
                self._open(now_s)

    def _push(self, fault: int) -> None:
        kept = self._outcomes << 1 | fault
        if kept.bit_length() > self._options.window + 1:
            kept = kept & ((1 << self._options.window) - 1) | 1 << self._options.window
        self._outcomes = kept

    def _too_many(self) -> bool:
        if self._outcomes.bit_length() <= self._options.window:
            return False  # too few outcomes for a fraction
        faults = self._outcomes.bit_count() - 1
        return faults >= self._options.fault_fraction_to_open * self._options.window

    def _open(self, now_s: float) -> None:
        self._opened_at_s = now_s
        self._trial_since_s = None
        self._outcomes, self._in_a_row = 1, 0
        self.opened += 1

    def _close(self) -> None:
        self._opened_at_s = self._trial_since_s = None
        self._open_for_s = self._options.open_s
        self._outcomes, self._in_a_row = 1, 0
