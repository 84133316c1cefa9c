"""Confirmed reuse beyond position-free exact blocks."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, share
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _lift(rows: Sequence[RequestRow]) -> Figure | None:
    measured = [
        (row.backend_confirmed_blocks - row.exact_hit_blocks, row.total_blocks)
        for row in rows
        if row.backend_confirmed_blocks is not None and row.exact_hit_blocks is not None
    ]
    return share(sum(gain for gain, _ in measured), sum(blocks for _, blocks in measured), len(measured))


METRIC = Metric(
    name="backend_confirmed_lift",
    unit="share",
    formula="(backend confirmed blocks - exact hit blocks) / total_blocks, over requests with both",
    needs=(
        Needs.TOKENS,
        Needs.BACKEND,
    ),
    evidence=Evidence.BACKEND_CONFIRMED,
    better="higher",
    measure=_lift,
)
