"""Which rows are pairs, and which pairs may be compared. Read by the summary, the metrics and the gates alike.

A pair is failed (an arm did not end ok, or never got a token), contaminated (its cold arm was not cold) or clean.
"""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.rows import ArmRow, RequestRow


def pairs_of(rows: Sequence[RequestRow]) -> list[RequestRow]:
    return [row for row in rows if row.cold is not None and row.warm is not None]


def timed(arm: ArmRow | None) -> float | None:
    """TTFT of an arm that ended ok; None if there is nothing to compare."""
    if arm is None or arm.status != "ok" or arm.ttft_ms is None or not arm.ttft_ms > 0:
        return None
    return arm.ttft_ms


def is_failed(row: RequestRow) -> bool:
    return timed(row.cold) is None or timed(row.warm) is None


def is_checked(row: RequestRow) -> bool:
    """The server said how many tokens of the cold prompt it had cached."""
    return row.cold is not None and row.cold.cached_tokens is not None and row.cold.contaminated is not None


def is_contaminated(row: RequestRow, block_size: int | None = None) -> bool:
    """By the row's own mark or, given the block size, by its cached tokens: the mark cannot whitewash them."""
    cold = row.cold
    if cold is None:
        return False
    over = block_size is not None and cold.cached_tokens is not None and cold.cached_tokens > block_size
    return cold.contaminated is True or over


def is_clean(row: RequestRow, block_size: int | None = None) -> bool:
    """A pair whose arms may be compared."""
    return not is_failed(row) and not is_contaminated(row, block_size)


def speedup(row: RequestRow) -> float:
    """Cold TTFT over warm TTFT of a clean pair."""
    cold_ms, warm_ms = timed(row.cold), timed(row.warm)
    if cold_ms is None or warm_ms is None:
        raise ValueError(f"{row.item_id} is no clean pair")
    return cold_ms / warm_ms


def e2e_speedup(row: RequestRow) -> float | None:
    """Cold over warm time until the last token of a clean pair; None where a clock is missing."""
    cold_ms = None if row.cold is None else row.cold.total_ms
    warm_ms = None if row.warm is None else row.warm.total_ms
    return cold_ms / warm_ms if cold_ms and warm_ms else None


def is_reused(row: RequestRow) -> bool | None:
    """Whether the backend confirmed reuse for the warm request; None if it said nothing."""
    if row.backend is None or row.backend.reused_tokens is None:
        return None
    return row.backend.reused_tokens > 0


def cold_arm(row: RequestRow) -> ArmRow | None:
    """The cold arm if figures may be made of it: it ended ok, was cold, and so did its pair where it has one."""
    if timed(row.cold) is None or is_contaminated(row) or (row.warm is not None and not is_clean(row)):
        return None
    return row.cold


def warm_arm(row: RequestRow) -> ArmRow | None:
    """The warm arm if figures may be made of it; of a pair, only where both arms may be compared."""
    if timed(row.warm) is None or (row.cold is not None and not is_clean(row)):
        return None
    return row.warm
