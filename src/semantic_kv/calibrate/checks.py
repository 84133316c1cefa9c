"""Can these observations carry a fit, and which rungs? Refusals say what to collect; nothing falls back silently."""

from __future__ import annotations

from typing import Final

import numpy as np

from semantic_kv.calibrate.observations import Observations
from semantic_kv.calibrate.rungs import Rung, alone_matrix
from semantic_kv.calibrate.solve import unexplained_share
from sembase.errors import ContractError

LEAST_FITTED: Final = 20
LEAST_HELD_OUT: Final = 8
_LEAST_SPREAD: Final = 0.5
_LEAST_DISTINCT: Final = 5
_LEAST_UNEXPLAINED: Final = 1e-3
_LEAST_OVERLAPPING: Final = 8


def require_enough(fitted: Observations, held_out: Observations) -> None:
    """Raises where the trace is too small, or its prompts too alike, to say anything."""
    skipped = "; ".join(f"{count} skipped: {reason}" for reason, count in fitted.skipped.items())
    note = f" ({skipped})" if skipped else ""
    if len(fitted) < LEAST_FITTED or len(held_out) < LEAST_HELD_OUT:
        raise ContractError(
            f"not calibrated: {len(fitted)} usable requests to fit and {len(held_out)} to hold out; it takes at least "
            f"{LEAST_FITTED} and {LEAST_HELD_OUT}{note}. Collect more requests"
        )
    tokens = fitted.uncached_tokens
    low, middle, high = (float(value) for value in np.quantile(tokens, [0.05, 0.5, 0.95]))
    if high - low < _LEAST_SPREAD * max(middle, 1.0) or np.unique(tokens).size < _LEAST_DISTINCT:
        raise ContractError(
            f"not calibrated: 90 % of the requests computed {low:.0f} to {high:.0f} uncached tokens, too alike to tell "
            "a price per token from a fixed one. Collect prompts of different lengths"
        )


def refusal(rung: Rung, fitted: Observations) -> str | None:
    """Why the rung cannot be fitted on these observations; None when it can."""
    if rung.queueing:
        overlapping = int(fitted.overlapping().sum())
        if overlapping < _LEAST_OVERLAPPING:
            return (
                f"{overlapping} of {len(fitted)} requests met a busy server; a queue cannot be fitted on fewer than "
                f"{_LEAST_OVERLAPPING}"
            )
        if not np.isfinite(fitted.total_ms).any():
            return "no total latencies, so the price of a pass cannot be told from the fixed part"
        return None
    relative = alone_matrix(rung, fitted) / fitted.ttft_ms[:, None]
    for column, name in enumerate(rung.coefficients):
        if unexplained_share(relative, column) < _LEAST_UNEXPLAINED:
            return f"{name} cannot be told apart from the other terms on these prompts"
    return None
