"""Answers that became others in the warm arm, over all pairs and over those that reused."""

from __future__ import annotations

from typing import Final

from sembench.metrics.base import Metric, Needs, share_of_requests
from sembench.metrics.rows import RequestRow
from sembench.paired.clean import is_clean, is_reused
from semblend.contract import Evidence


def _flipped(row: RequestRow) -> bool | None:
    if row.pair is None or not is_clean(row):
        return None
    return row.pair.answer_flip


ALL: Final = Metric(
    name="answer_flip_rate",
    unit="share",
    formula="clean pairs whose warm answer is another than the cold one / clean pairs with both answers judged",
    needs=(Needs.PAIRS, Needs.ANSWERS),
    evidence=Evidence.MEASURED_LIVE,
    better="lower",
    measure=lambda rows: share_of_requests(rows, _flipped),
)
REUSED: Final = Metric(
    name="reused_answer_flip_rate",
    unit="share",
    formula="answer_flip_rate over pairs whose reuse the backend confirmed",
    needs=(Needs.PAIRS, Needs.ANSWERS, Needs.BACKEND),
    evidence=Evidence.BACKEND_CONFIRMED,
    better="lower",
    measure=lambda rows: share_of_requests([row for row in rows if is_reused(row)], _flipped),
    companion="answer_flip_rate",
)
