"""Cold arms that were not cold. Their pairs are excluded everywhere and counted here."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_requests
from semblend.contract import Evidence

METRIC = Metric(
    name="contaminated_cold_arm_rate",
    unit="share",
    formula="cold arms with more than one block of cached tokens / cold arms whose cached tokens the server reported",
    needs=(Needs.LIVE,),
    evidence=Evidence.MEASURED_LIVE,
    better="lower",
    measure=lambda rows: share_of_requests(rows, lambda row: row.cold.contaminated if row.cold else None),
)
