"""M2 by tokens: what was loaded of what was promised. The rest of a kept promise are holes, computed by the adapter."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, share
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _loaded(rows: Sequence[RequestRow]) -> Figure | None:
    measured = [
        (row.backend.reused_tokens or 0, row.backend.advertised_tokens)
        for row in rows
        if row.backend is not None and row.backend.advertised_tokens
    ]
    return share(sum(loaded for loaded, _ in measured), sum(promised for _, promised in measured), len(measured))


METRIC = Metric(
    name="materialized_reuse_token_rate",
    unit="share",
    formula="M2: tokens the backend confirmed as reused / tokens the adapter advertised",
    needs=(Needs.BACKEND,),
    evidence=Evidence.BACKEND_CONFIRMED,
    better="higher",
    measure=_loaded,
)
