"""Requests that did not end ok. They are in no other live figure, so their number must be seen."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, share
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _failed(rows: Sequence[RequestRow]) -> Figure | None:
    arms = [arm for row in rows for arm in (row.cold, row.warm) if arm is not None]
    return share(sum(arm.status != "ok" for arm in arms), len(arms), len(arms))


METRIC = Metric(
    name="failed_request_rate",
    unit="share",
    formula="cold and warm arms that did not end ok / arms sent",
    needs=(Needs.LIVE,),
    evidence=Evidence.MEASURED_LIVE,
    better="lower",
    measure=_failed,
)
