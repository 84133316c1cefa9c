"""Token recall of both arms side by side. The warm figure alone would not show the effect of reuse."""

from __future__ import annotations

from statistics import fmean

from sembench.report.formats import score
from sembench.report.subject import Subject


def recall_of_both(subject: Subject) -> str:
    """Mean token recall over the clean pairs that are scored in both arms."""
    arms = [(pair.row.cold, pair.row.warm) for pair in subject.pairs.clean]
    both = [
        (cold.token_recall, warm.token_recall)
        for cold, warm in arms
        if cold is not None and warm is not None and cold.token_recall is not None and warm.token_recall is not None
    ]
    if not both:
        return "cold answers not scored"
    cold_mean, warm_mean = (fmean(values) for values in zip(*both, strict=True))
    return f"token recall {score(warm_mean)} warm, {score(cold_mean)} cold, n = {len(both):,}"
