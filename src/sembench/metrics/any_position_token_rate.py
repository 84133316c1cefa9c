"""How much of the traffic was seen before, wherever it stood: what there is to be found, whoever looks."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, share
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _any_position(rows: Sequence[RequestRow]) -> Figure | None:
    measured = [(row.any_position_tokens, row.prompt_tokens) for row in rows if row.any_position_tokens is not None]
    return share(sum(tokens for tokens, _ in measured), sum(tokens for _, tokens in measured), len(measured))


METRIC = Metric(
    name="any_position_token_rate",
    unit="share",
    formula="recipient tokens in token-verified runs of at least 64 tokens anywhere in earlier traffic / prompt_tokens",
    needs=(Needs.TOKENS,),
    evidence=Evidence.OFFLINE,
    better="neither",
    measure=_any_position,
)
