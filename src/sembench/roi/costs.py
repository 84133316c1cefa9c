"""Measured costs: times of single requests, from a paired live result or from ``make bench-vllm``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sembase.errors import ContractError
from sembench.metrics.rows import is_clean, is_reused, pairs_of, timed
from sembench.result import RESULT_VERSION, read_result

_REUSED: Final = "backend_materialized_reuse"
_STOCK, _MISS, _CAPTURE = "stock", "miss", "capture"


@dataclass(frozen=True, slots=True)
class ReusedRequest:
    """One request served cold, and once more with backend-confirmed reuse."""

    prompt_tokens: int
    cold_ms: float
    warm_ms: float


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """``miss_shares`` and ``capture_shares`` are the extra time of each request as a fraction of its cold time; empty
    if not measured.

    ``cold_is_a_miss``: some cold times come from a server with the connector, so its cost is in both arms.
    ``reused`` of ``reported`` requests had confirmed reuse. None if the requests were selected to have a donor.
    """

    requests: tuple[ReusedRequest, ...]
    miss_shares: tuple[float, ...]
    capture_shares: tuple[float, ...]
    reused: int | None
    reported: int | None
    source: str
    cold_is_a_miss: bool = False


def read_costs(paths: Sequence[Path]) -> MeasuredCosts:
    """Merges several files. The reuse counts are kept only if every file has them."""
    read = [_read(path) for path in paths]
    rates = [(costs.reused, costs.reported) for costs in read]
    known = [(a, b) for a, b in rates if a is not None and b is not None]
    whole = len(known) == len(read)
    return MeasuredCosts(
        requests=tuple(request for costs in read for request in costs.requests),
        miss_shares=tuple(share for costs in read for share in costs.miss_shares),
        capture_shares=tuple(share for costs in read for share in costs.capture_shares),
        reused=sum(a for a, _ in known) if whole else None,
        reported=sum(b for _, b in known) if whole else None,
        source=", ".join(costs.source for costs in read),
        cold_is_a_miss=any(costs.cold_is_a_miss for costs in read),
    )


def _read(path: Path) -> MeasuredCosts:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(f"{path}: not JSON: {error}") from None
    if isinstance(record, dict) and record.get("result_version") == RESULT_VERSION:
        return _of_result(path)
    if isinstance(record, dict) and isinstance(record.get("rows"), list):
        return _of_benchmark(record, path)
    raise ContractError(f"{path}: neither a paired live result nor a result of make bench-vllm")


def _of_result(path: Path) -> MeasuredCosts:
    result, rows = read_result(path)
    block_size = result["config"].get("block_size") if isinstance(result["config"], dict) else None
    clean = [row for row in pairs_of(rows) if is_clean(row, block_size if isinstance(block_size, int) else None)]
    if not clean:
        raise ContractError(f"{path}: no clean pair of a cold and a warm request; run with --paired")
    times = [(row, timed(row.cold) or 0.0, timed(row.warm) or 0.0) for row in clean]
    reported = [row for row in clean if not row.negative_control and is_reused(row) is not None]
    return MeasuredCosts(
        requests=tuple(ReusedRequest(row.prompt_tokens, cold, warm) for row, cold, warm in times if is_reused(row)),
        miss_shares=tuple(warm / cold - 1.0 for row, cold, warm in times if is_reused(row) is False),
        capture_shares=(),
        reused=sum(bool(is_reused(row)) for row in reported),
        reported=len(reported),
        source=f"{path.name} (paired live run)",
        cold_is_a_miss=True,
    )


def _of_benchmark(record: Mapping[str, Any], path: Path) -> MeasuredCosts:
    """All of its requests have a donor by construction, so their reuse rate says nothing about real traffic."""
    try:
        rows = [row for row in record["rows"] if not row.get("cold_cached_tokens")]
        reused = [
            row for row in rows if row["ours_ms"] is not None and (row.get("fate") or {}).get("outcome") == _REUSED
        ]
        requests = tuple(
            ReusedRequest(int(row["prompt_tokens"]), float(row["cold_ms"]), float(row["ours_ms"])) for row in reused
        )
        overhead = [row["first_ms"] for row in record.get("overhead") or [] if row.get("is_clean", True)]
        miss = tuple(times[_MISS] / times[_STOCK] - 1.0 for times in overhead if _MISS in times and _STOCK in times)
        capture = tuple(
            times[_CAPTURE] / times[_MISS] - 1.0 for times in overhead if _CAPTURE in times and _MISS in times
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ContractError(f"{path}: not a result of make bench-vllm: {error!r}") from None
    return MeasuredCosts(requests, miss, capture, None, None, f"{path.name} (make bench-vllm)")
