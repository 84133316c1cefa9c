"""Negative controls by what the engine and the server said of them: silence is not innocence."""

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
    if not verdict.request.max_negative_control_confirmed_rate:  # who allows some blocks allows their requests
        _judge_loads(verdict, loads, negatives)
        _judge_cached(verdict, config, negatives)
    if verdict.request.require_joined_evidence:
        _judge_silence(verdict, negatives)


def _judge_loads(verdict: Verdict, loads: Mapping[str, Load] | None, negatives: Sequence[RequestRow]) -> None:
    """By the engine's own events, so that a row cannot keep silent about it."""
    if loads is not None and negatives:
        leaks = requests_of_result(list(loads), {row.item_id for row in negatives})
        _decide(verdict, "negative_control_materialized_requests", leaks, len(negatives))


def _judge_cached(verdict: Verdict, config: Mapping[str, Any], negatives: Sequence[RequestRow]) -> None:
    """After a reset of the exact cache a negative control knows no token, so cached ones came from a donor."""
    size = config.get("block_size")
    if not config.get("recipient_resets") or type(size) is not int:
        return
    told = [(row.item_id, row.warm.cached_tokens) for row in negatives if row.warm is not None]
    counted = [(item, tokens) for item, tokens in told if tokens is not None]
    if counted:
        warm = [item for item, tokens in counted if tokens > size]
        _decide(verdict, "negative_control_cached_requests", warm, len(counted))


def _judge_silence(verdict: Verdict, negatives: Sequence[RequestRow]) -> None:
    answered = [row for row in negatives if row.warm is not None and row.warm.status == "ok"]
    if not answered:
        return
    silent = [row.item_id for row in answered if is_reused(row) is None]
    told = len(answered) - len(silent)
    wanted = "all of them" + (f"; of {silent[0]} the backend does not say whether it reused" if silent else "")
    share = Measured(told / len(answered), len(answered), told, len(answered))
    verdict.decide(
        "require_joined_evidence", "negative_control_reported_share", share, lambda value: value == 1, wanted
    )


def _decide(verdict: Verdict, metric: str, culprits: Sequence[str], of: int) -> None:
    wanted = "0" + (f"; {culprits[0]} first" if culprits else "")
    rate = Measured(len(culprits) / of, of, len(culprits), of)
    verdict.decide("must_be_zero", metric, rate, lambda value: value == 0, wanted)
