"""Whether a changed fact (name, figure, 'not') was planned from the donor that says otherwise. Must be 0."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, share
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _changed(rows: Sequence[RequestRow]) -> Figure | None:
    measured = [
        (row.changed_planned_tokens, row.changed_tokens)
        for row in rows
        if row.changed_tokens is not None and row.changed_planned_tokens is not None
    ]
    return share(sum(planned for planned, _ in measured), sum(changed for _, changed in measured), len(measured))


METRIC = Metric(
    name="changed_token_planned_rate",
    unit="share",
    formula="recipient tokens at edit positions that lie in a planned run / recipient tokens at edit positions",
    needs=(
        Needs.EDITS,
        Needs.PLAN,
    ),
    evidence=Evidence.OFFLINE,
    better="lower",
    measure=_changed,
)
