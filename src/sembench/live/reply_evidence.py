"""A backend's word in the reply itself, for servers that put it there: only a body that names its outcome counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sembench.metrics.rows import BackendRow


def backend_of_reply(request_id: str, said: Mapping[str, Any] | None) -> BackendRow | None:
    if said is None or not isinstance(said.get("outcome"), str):
        return None
    runs = said.get("runs")
    return BackendRow(
        engine_request_id=request_id,
        outcome=said["outcome"],
        boundary=_count(said.get("exact_prefix_tokens")),
        reused_tokens=_count(said.get("reused_tokens")),
        computed_tokens=_count(said.get("computed_tokens")),
        runs=len(runs) if isinstance(runs, list) else _count(runs),
        decline_reason=said["reason"] if isinstance(said.get("reason"), str) else None,
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
