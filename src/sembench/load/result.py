"""The result of a load (``sembench.load.v1``) from its parts; docs/guides/load.md names every key."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sembench.environment import describe_environment
from sembench.load.warnings import warnings_of
from semblend.contract import Evidence

LOAD_VERSION: Final = "sembench.load.v1"


def load_result(
    *,
    run: Mapping[str, Any],
    config: Mapping[str, Any],
    figures: Mapping[str, Any],
    client: Mapping[str, Any],
    server_metrics: Mapping[str, Any] | None,
) -> dict[str, Any]:
    wall_s = figures["throughput"]["wall_s"]
    result = {
        "result_version": LOAD_VERSION,
        "created_at_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": {"kind": "load", "evidence": str(Evidence.MEASURED_LIVE), **run},
        "config": dict(config),
        "environment": describe_environment(),
        **figures,
        "client": {**client, "cpu_share_of_one_core": client["cpu_s"] / wall_s if wall_s else None},
        "server_metrics": server_metrics,
    }
    return {**result, "warnings": warnings_of(result)}
