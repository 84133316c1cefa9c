"""Observed TTFT -> milliseconds per prefill token, learnt while serving. Fed by the router, read by every decision.

A Theil-Sen line over a bounded window: the median of slopes between the lower and the upper half of the work done, so
that up to a quarter of outliers (a stall, a compilation, a wrong usage count) cannot move it out of the range of the
others. It starts from the stated prior and never leaves a factor of ``_REACH`` around it. 16 bytes per observation.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from sembase.errors import ConfigurationError
from semgate.placement.cost import Price
from semgate.placement.view import Observed

_REACH: Final = 50.0
_REFIT_EVERY: Final = 16
_MIN_FIT: Final = 32


class PrefillLearner:
    def __init__(self, prior: Price, window: int = 256) -> None:
        if window < _MIN_FIT:
            raise ConfigurationError(f"the window of the prefill learner must hold at least {_MIN_FIT} observations")
        self._prior = prior
        self._price = prior
        self._work_tokens = np.zeros(window)
        self._ttft_ms = np.zeros(window)
        self.seen = 0
        self.refused = 0

    @property
    def price(self) -> Price:
        return self._price

    def learn(self, observed: Observed) -> None:
        """The work is what the request waited for: its own tokens and those ahead, minus what the head of the queue had
        finished according to the current price. Rejects observations that cannot be measurements."""
        uncached = observed.prompt_tokens - (observed.cached_tokens or 0)
        if not math.isfinite(observed.ttft_ms) or observed.ttft_ms <= 0.0 or uncached < 0 or observed.tokens_ahead < 0:
            self.refused += 1
            return
        done = min(observed.head_tokens, max(observed.head_age_ms, 0.0) / self._price.ms_per_token)
        row = self.seen % self._ttft_ms.size
        self._work_tokens[row] = max(uncached, 1) + max(observed.tokens_ahead - done, 0.0)
        self._ttft_ms[row] = observed.ttft_ms
        self.seen += 1
        every = _REFIT_EVERY if self.seen <= self._ttft_ms.size else 4 * _REFIT_EVERY  # a full window changes slowly
        if self.seen % every == 0 and self.seen >= _MIN_FIT:
            self._refit(min(self.seen, self._ttft_ms.size))

    def _refit(self, count: int) -> None:
        order = np.argsort(self._work_tokens[:count], kind="stable")
        work, ttft = self._work_tokens[:count][order], self._ttft_ms[:count][order]
        half = count // 2
        apart = work[count - half :] - work[:half]
        differs = apart > 0.0
        if np.count_nonzero(differs) < half // 2:
            return  # requests of equal size cannot determine the price of a token
        slope = float(np.median((ttft[count - half :] - ttft[:half])[differs] / apart[differs]))
        slope = min(max(slope, self._prior.ms_per_token / _REACH), self._prior.ms_per_token * _REACH)
        base = max(float(np.median(ttft - slope * work)), 0.0)
        self._price = replace(self._prior, base_ms=base, ms_per_token=slope, source="learnt")
