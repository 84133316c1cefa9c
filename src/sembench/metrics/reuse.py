"""Metrics of confirmed reuse: what the serving backend itself reported. Only these figures may be called reuse."""

from __future__ import annotations

from typing import Final

from sembench.metrics.base import (
    Metric,
    Needs,
    fraction_of_blocks,
    fraction_of_requests,
    fraction_of_tokens,
    ratio_of_sums,
)
from sembench.metrics.rows import RequestRow, is_reused
from semblend.contract import Evidence


def _lift(row: RequestRow) -> tuple[int, int] | None:
    if row.backend_confirmed_blocks is None or row.exact_hit_blocks is None:
        return None
    return row.backend_confirmed_blocks - row.exact_hit_blocks, row.total_blocks


def _is_aligned(row: RequestRow) -> bool | None:
    backend, warm = row.backend, row.warm
    if backend is None or warm is None or not backend.reused_tokens:
        return None
    if backend.boundary is None or warm.cached_tokens is None:
        return None
    return backend.boundary == warm.cached_tokens - backend.reused_tokens


def _is_loaded(row: RequestRow) -> bool | None:
    if row.backend is None or not row.backend.advertised_tokens:
        return None
    return bool(row.backend.reused_tokens)


def _loaded(row: RequestRow) -> tuple[int, int] | None:
    if row.backend is None or not row.backend.advertised_tokens:
        return None
    return row.backend.reused_tokens or 0, row.backend.advertised_tokens


def _is_propagated(row: RequestRow) -> bool | None:
    if row.backend is None or row.backend.propagated_tokens is None:
        return None
    return row.backend.propagated_tokens > 0


REUSE_METRICS: Final = (
    Metric(
        name="backend_confirmed_block_rate",
        unit="share",
        formula="blocks the backend reported as reused / blocks of the requests it reported on; None if it never "
        "reported",
        needs=(Needs.BACKEND,),
        evidence=Evidence.BACKEND_CONFIRMED,
        better="higher",
        measure=lambda rows: fraction_of_blocks(rows, lambda row: row.backend_confirmed_blocks),
    ),
    # Confirmed reuse beyond position-independent exact blocks.
    Metric(
        name="backend_confirmed_lift",
        unit="share",
        formula="(backend confirmed blocks - exact hit blocks) / total_blocks, over requests with both",
        needs=(Needs.TOKENS, Needs.BACKEND),
        evidence=Evidence.BACKEND_CONFIRMED,
        better="higher",
        measure=lambda rows: ratio_of_sums(rows, _lift),
    ),
    Metric(
        name="confirmed_reuse_rate_by_request",
        unit="share",
        formula="requests with at least one token the backend confirmed as reused / requests it reported on",
        needs=(Needs.BACKEND,),
        evidence=Evidence.BACKEND_CONFIRMED,
        better="higher",
        measure=lambda rows: fraction_of_requests(rows, is_reused),
    ),
    Metric(
        name="confirmed_reused_token_rate",
        unit="share",
        formula="tokens the backend confirmed as reused / prompt tokens of the requests it reported on",
        needs=(Needs.BACKEND,),
        evidence=Evidence.BACKEND_CONFIRMED,
        better="higher",
        measure=lambda rows: fraction_of_tokens(rows, lambda row: row.backend.reused_tokens if row.backend else None),
    ),
    # M1: a load must begin where the engine's own prefix hit ends. The client's usage figures cross-check the boundary.
    Metric(
        name="boundary_alignment_rate",
        unit="share",
        formula="M1: requests whose reported boundary equals cached tokens - reused tokens / requests with confirmed "
        "reuse, a boundary and cached tokens",
        needs=(Needs.BACKEND, Needs.LIVE),
        evidence=Evidence.BACKEND_CONFIRMED,
        better="higher",
        measure=lambda rows: fraction_of_requests(rows, _is_aligned),
    ),
    # M2 by requests: claims that were followed by a load.
    Metric(
        name="materialized_reuse_rate",
        unit="share",
        formula="M2: requests with confirmed reuse / requests for which the adapter advertised a load",
        needs=(Needs.BACKEND,),
        evidence=Evidence.BACKEND_CONFIRMED,
        better="higher",
        measure=lambda rows: fraction_of_requests(rows, _is_loaded),
    ),
    # M2 by tokens: what was loaded of what was claimed. The adapter computes the rest, the gaps.
    Metric(
        name="materialized_reuse_token_rate",
        unit="share",
        formula="M2: tokens the backend confirmed as reused / tokens the adapter advertised",
        needs=(Needs.BACKEND,),
        evidence=Evidence.BACKEND_CONFIRMED,
        better="higher",
        measure=lambda rows: ratio_of_sums(rows, _loaded),
    ),
    # M7: whether loaded KV was later served to another request as if it were exact. Must be 0.
    Metric(
        name="propagation_contamination_rate",
        unit="share",
        formula="M7: probes served cached tokens beyond their true exact prefix / probes",
        needs=(Needs.PROBE,),
        evidence=Evidence.MEASURED_LIVE,
        better="lower",
        measure=lambda rows: fraction_of_requests(rows, _is_propagated),
    ),
)
