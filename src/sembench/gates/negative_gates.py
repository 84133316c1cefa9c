"""Negative controls, judged by the engine's events and the server's counts. A missing report is not a pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sembench.gates.engine_summary import Load
from sembench.gates.request_ids import requests_of_result
from sembench.gates.verdict import Measured, Verdict
from sembench.metrics.rows import RequestRow, is_reused


def judge_negative_controls(
    verdict: Verdict, loads: Mapping[str, Load] | None, config: Mapping[str, Any], rows: Sequence[RequestRow]
) -> None:
    negatives = [row for row in rows if row.negative_control]
    if not verdict.request.limit(
        "max_negative_control_confirmed_rate"
    ):  # a limit that allows blocks allows their requests, too
        _judge_loads(verdict, loads, negatives)
        _judge_cached(verdict, config, negatives)
    if "require_joined_evidence" in verdict.request.requested:
        _require_reports(verdict, negatives)


def _judge_loads(verdict: Verdict, loads: Mapping[str, Load] | None, negatives: Sequence[RequestRow]) -> None:
    """Judged by the engine's own events, so that a row cannot hide a load."""
    if loads is not None and negatives:
        leaks = requests_of_result(list(loads), {row.item_id for row in negatives})
        _decide(verdict, "negative_control_materialized_requests", leaks, len(negatives))


def _judge_cached(verdict: Verdict, config: Mapping[str, Any], negatives: Sequence[RequestRow]) -> None:
    """After a reset of the exact cache, cached tokens of a negative control can only come from a donor."""
    size = config.get("block_size")
    if not config.get("recipient_resets") or type(size) is not int:
        return
    sent = [(row.item_id, row.warm.cached_tokens) for row in negatives if row.warm is not None]
    counted = [(item, tokens) for item, tokens in sent if tokens is not None]
    if counted:
        warm = [item for item, tokens in counted if tokens > size]
        _decide(verdict, "negative_control_cached_requests", warm, len(counted))


def _require_reports(verdict: Verdict, negatives: Sequence[RequestRow]) -> None:
    answered = [row for row in negatives if row.warm is not None and row.warm.status == "ok"]
    if not answered:
        return
    silent = [row.item_id for row in answered if is_reused(row) is None]
    reported = len(answered) - len(silent)
    wanted = "all of them" + (f"; the backend does not report whether {silent[0]} reused KV" if silent else "")
    found = Measured(reported / len(answered), len(answered), reported, len(answered))
    verdict.decide(
        "require_joined_evidence", "negative_control_reported_share", found, lambda value: value == 1, wanted
    )


def _decide(verdict: Verdict, metric: str, culprits: Sequence[str], of: int) -> None:
    wanted = "0" + (f"; {culprits[0]} first" if culprits else "")
    rate = Measured(len(culprits) / of, of, len(culprits), of)
    verdict.decide("must_be_zero", metric, rate, lambda value: value == 0, wanted)
