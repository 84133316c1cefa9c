"""The headline speedups, from the rows. Reused-only is never shown without blended, and neither without its n."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.report.estimates import Estimate, median_estimate
from sembench.report.pairs import Pair
from sembench.report.subject import Subject


def blended(subject: Subject) -> Estimate | None:
    """Median of cold TTFT / warm TTFT over all clean pairs except negative controls; misses are included."""
    return _median(subject, subject.pairs.blended)


def reused_only(subject: Subject) -> Estimate | None:
    return _median(subject, subject.pairs.of("reuse"))


def end_to_end(subject: Subject) -> Estimate | None:
    """Median of cold / warm time to the last token, as in the ``paired`` block."""
    paired = subject.paired
    value, n = paired.get("blended_e2e_speedup_median"), paired.get("blended_e2e_speedup_n")
    if not isinstance(value, int | float) or not isinstance(n, int):
        return None
    low, high = paired.get("blended_e2e_speedup_ci95") or (None, None)
    return Estimate(n, value, low, high)


def negatives(subject: Subject) -> Estimate | None:
    return _median(subject, subject.pairs.of("negative"))


def _median(subject: Subject, pairs: Sequence[Pair]) -> Estimate | None:
    seed = subject.paired.get("bootstrap_seed")
    return median_estimate([pair.speedup for pair in pairs], seed if isinstance(seed, int) else 1)
