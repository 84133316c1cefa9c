"""Records in, figures out: latencies, throughput, goodput, cached tokens, lateness. Pure: a test can redo it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sembench.http.reply import CANCELLED
from sembench.load.percentiles import summarize
from sembench.load.record import LoadRecord


@dataclass(frozen=True, slots=True)
class Slo:
    """What a good request keeps to. Without any limit there is no goodput."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None

    @property
    def given(self) -> bool:
        return self.ttft_ms is not None or self.tpot_ms is not None

    def kept(self, ttft_ms: float | None, tpot_ms: float | None) -> bool:
        """An answer of one token has no time per further token, and so keeps to any limit on it."""
        if self.ttft_ms is not None and (ttft_ms is None or ttft_ms > self.ttft_ms):
            return False
        return self.tpot_ms is None or tpot_ms is None or tpot_ms <= self.tpot_ms


def summarize_load(
    records: Sequence[LoadRecord], gaps_ms: Iterable[float], slo: Slo, peak_in_flight: int
) -> dict[str, Any]:
    """Latencies are of answers that ended well; what failed is counted beside them and is never good."""
    ended_well = [record for record in records if record.ok]
    wall_s = max((r.sent_s + (r.total_ms or 0.0) / 1000.0 for r in records), default=0.0)
    open_loop = any(record.scheduled_s is not None for record in records)
    return {
        "requests": {
            "sent": len(records),
            "ok": len(ended_well),
            "cancelled": sum(record.status == CANCELLED for record in records),
            "by_status": dict(sorted(Counter(record.status for record in records).items())),
            "without_usage": sum(record.completion_tokens is None for record in ended_well),
            "without_token": sum(record.ttft_ms is None for record in ended_well),
        },
        "latency_ms": {
            "ttft": _over(ended_well, lambda r: r.ttft_ms),
            "tpot": _over(ended_well, lambda r: r.tpot_ms),
            "itl": summarize(gaps_ms),
            "e2e": _over(ended_well, lambda r: r.total_ms),
            "ttft_from_schedule": _over(ended_well, lambda r: r.from_schedule(r.ttft_ms)),
            "e2e_from_schedule": _over(ended_well, lambda r: r.from_schedule(r.total_ms)),
        },
        "lateness_ms": _over(records, lambda r: r.lateness_ms),
        "throughput": {
            "wall_s": wall_s,
            "requests_per_s": _per(len(ended_well), wall_s),
            "output_tokens_per_s": _per(sum(record.tokens for record in ended_well), wall_s),
            "prompt_tokens_per_s": _per(_known(r.prompt_tokens for r in ended_well), wall_s),
            "peak_in_flight": peak_in_flight,
        },
        "cached_tokens": _cached(ended_well),
        "goodput": _goodput(records, slo, wall_s, open_loop) if slo.given else None,
    }


def _goodput(records: Sequence[LoadRecord], slo: Slo, wall_s: float, open_loop: bool) -> dict[str, Any]:
    """Cancelled requests were not given the time to be good or bad, so they are in no denominator."""
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


def _cached(ended_well: Sequence[LoadRecord]) -> dict[str, Any] | None:
    """What the server says it served from its cache, over the requests of which it says so; None if of none."""
    told = [(r.cached_tokens, r.prompt_tokens) for r in ended_well if r.cached_tokens is not None and r.prompt_tokens]
    if not told:
        return None
    cached, prompt = sum(cached for cached, _ in told), sum(prompt for _, prompt in told)
    return {"cached": cached, "prompt": prompt, "share": cached / prompt, "requests": len(told)}


def _over(records: Iterable[LoadRecord], figure: Callable[[LoadRecord], float | None]) -> dict[str, Any] | None:
    return summarize([value for record in records if (value := figure(record)) is not None])


def _known(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _per(amount: int | None, seconds: float) -> float | None:
    return amount / seconds if amount is not None and seconds > 0 else None
