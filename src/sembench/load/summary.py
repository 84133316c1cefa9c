"""Records in, figures out: latencies, throughput, goodput, cached tokens, lateness. Pure functions.

Percentiles have distribution-free confidence intervals from order statistics: the p-th percentile lies between two
values of the ordered sample with a binomial probability, whatever the distribution. A bound is None if the sample is
too small for it (the p99 of 100 values has no upper bound).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sembench.http.reply import CANCELLED
from sembench.load.records import LoadRecord

PERCENTS: Final = (50, 90, 95, 99)
_CONFIDENCE: Final = 0.95
_NORMAL_95: Final = 1.959964
_EXACT_UP_TO: Final = 20_000  # beyond, the normal approximation of the binomial is off by less than a rank in a hundred


@dataclass(frozen=True, slots=True)
class Slo:
    """Latency limits of a good request. Without any limit there is no goodput."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None

    @property
    def given(self) -> bool:
        return self.ttft_ms is not None or self.tpot_ms is not None

    def kept(self, ttft_ms: float | None, tpot_ms: float | None) -> bool:
        """A reply of one token has no time per further token, so it meets any limit on it."""
        if self.ttft_ms is not None and (ttft_ms is None or ttft_ms > self.ttft_ms):
            return False
        return self.tpot_ms is None or tpot_ms is None or tpot_ms <= self.tpot_ms


def summarize_load(
    records: Sequence[LoadRecord], gaps_ms: Iterable[float], slo: Slo, peak_in_flight: int
) -> dict[str, Any]:
    """Latencies are of successful requests; failed ones are counted separately and are never good."""
    successful = [record for record in records if record.ok]
    wall_s = max((r.sent_s + (r.total_ms or 0.0) / 1000.0 for r in records), default=0.0)
    open_loop = any(record.scheduled_s is not None for record in records)
    return {
        "requests": {
            "sent": len(records),
            "ok": len(successful),
            "cancelled": sum(record.status == CANCELLED for record in records),
            "by_status": dict(sorted(Counter(record.status for record in records).items())),
            "without_usage": sum(record.completion_tokens is None for record in successful),
            "without_token": sum(record.ttft_ms is None for record in successful),
        },
        "latency_ms": {
            "ttft": _over(successful, lambda r: r.ttft_ms),
            "tpot": _over(successful, lambda r: r.tpot_ms),
            "itl": summarize(gaps_ms),
            "e2e": _over(successful, lambda r: r.total_ms),
            "ttft_from_schedule": _over(successful, lambda r: r.from_schedule(r.ttft_ms)),
            "e2e_from_schedule": _over(successful, lambda r: r.from_schedule(r.total_ms)),
        },
        "lateness_ms": _over(records, lambda r: r.lateness_ms),
        "throughput": {
            "wall_s": wall_s,
            "requests_per_s": _per(len(successful), wall_s),
            "output_tokens_per_s": _per(sum(record.tokens for record in successful), wall_s),
            "prompt_tokens_per_s": _per(_known(r.prompt_tokens for r in successful), wall_s),
            "peak_in_flight": peak_in_flight,
        },
        "cached_tokens": _cached(successful),
        "goodput": _goodput(records, slo, wall_s, open_loop) if slo.given else None,
    }


def _goodput(records: Sequence[LoadRecord], slo: Slo, wall_s: float, open_loop: bool) -> dict[str, Any]:
    """Cancelled requests had no time to become good or bad, so no denominator includes them."""
    judged = [record for record in records if record.status != CANCELLED]
    good = sum(r.ok and slo.kept(r.ttft_ms, r.tpot_ms) for r in judged)
    punctual = sum(r.ok and slo.kept(r.from_schedule(r.ttft_ms), r.tpot_ms) for r in judged) if open_loop else None
    return {
        "slo_ttft_ms": slo.ttft_ms,
        "slo_tpot_ms": slo.tpot_ms,
        "good": good,
        "of": len(judged),
        "share": good / len(judged) if judged else None,
        "good_per_s": _per(good, wall_s),
        "good_from_schedule": punctual,
    }


def _cached(successful: Sequence[LoadRecord]) -> dict[str, Any] | None:
    """Cached tokens over prompt tokens of the requests for which the server reports both; None if for none."""
    reported = [
        (r.cached_tokens, r.prompt_tokens) for r in successful if r.cached_tokens is not None and r.prompt_tokens
    ]
    if not reported:
        return None
    cached, prompt = sum(cached for cached, _ in reported), sum(prompt for _, prompt in reported)
    return {"cached": cached, "prompt": prompt, "share": cached / prompt, "requests": len(reported)}


def _over(records: Iterable[LoadRecord], figure: Callable[[LoadRecord], float | None]) -> dict[str, Any] | None:
    return summarize([value for record in records if (value := figure(record)) is not None])


def _known(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _per(amount: int | None, seconds: float) -> float | None:
    return amount / seconds if amount is not None and seconds > 0 else None


def summarize(values: Iterable[float]) -> dict[str, Any] | None:
    """``n``, mean, min, max and nearest-rank percentiles with ``ci95``; None for no values."""
    ordered = np.sort(np.fromiter(values, np.float64))
    count = len(ordered)
    if not count:
        return None
    return {
        "n": count,
        "mean": float(ordered.mean()),
        "min": float(ordered[0]),
        "max": float(ordered[-1]),
        **{f"p{percent}": _percentile(ordered, percent) for percent in PERCENTS},
    }


def value_of(summary: Mapping[str, Any] | None, percent: int) -> float | None:
    return None if summary is None else float(summary[f"p{percent}"]["value"])


def _percentile(ordered: NDArray[np.float64], percent: int) -> dict[str, Any]:
    rank = max(1, math.ceil(percent / 100 * len(ordered)))
    low, high = confidence_ranks(len(ordered), percent / 100)
    bounds = [None if at is None else float(ordered[at - 1]) for at in (low, high)]
    return {"value": float(ordered[rank - 1]), "ci95": bounds}


def confidence_ranks(count: int, fraction: float) -> tuple[int | None, int | None]:
    """Ranks from 1 whose values enclose the percentile with at least 95 % probability, 2.5 % outside on each side."""
    if count > _EXACT_UP_TO:
        middle, spread = count * fraction, _NORMAL_95 * math.sqrt(count * fraction * (1.0 - fraction))
        return max(1, math.floor(middle - spread)), min(count, math.ceil(middle + spread) + 1)
    tail = (1.0 - _CONFIDENCE) / 2
    # P(B <= k) for B ~ Binomial(count, fraction), the number of values below the percentile.
    k = np.arange(count + 1)
    below = np.cumsum(np.exp(_log_choose(count, k) + k * math.log(fraction) + (count - k) * math.log1p(-fraction)))
    low = int(np.searchsorted(below, tail, side="right"))
    high = int(np.searchsorted(below, 1.0 - tail, side="left")) + 1
    return (low if low >= 1 else None), (high if high <= count else None)


def _log_choose(count: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
    logs = np.concatenate([np.zeros(1), np.cumsum(np.log(np.arange(1, count + 1)))])
    chosen: NDArray[np.float64] = logs[count] - logs[k] - logs[count - k]
    return chosen
