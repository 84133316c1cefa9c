"""How much of the prompts the backend did not have to compute, token by token."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, share
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _reused(rows: Sequence[RequestRow]) -> Figure | None:
    measured = [
        (row.backend.reused_tokens, row.prompt_tokens)
        for row in rows
        if row.backend is not None and row.backend.reused_tokens is not None
    ]
    return share(sum(reused for reused, _ in measured), sum(tokens for _, tokens in measured), len(measured))


METRIC = Metric(
    name="confirmed_reused_token_rate",
    unit="share",
    formula="tokens the backend confirmed as reused / prompt tokens of the requests it reported on",
    needs=(Needs.BACKEND,),
    evidence=Evidence.BACKEND_CONFIRMED,
    better="higher",
    measure=_reused,
)
