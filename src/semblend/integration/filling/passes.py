"""Stretches to compute, in forward passes no larger than the engine's own. Numbers only; the adapters call it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from semblend.contract import TokenRange


def in_passes(ranges: Sequence[TokenRange], max_tokens: int, max_rows: int | None = None) -> Iterator[list[TokenRange]]:
    """The ranges in their order, cut and grouped so that no pass has more tokens or rows than that."""
    group: list[TokenRange] = []
    left = max_tokens
    for part in ranges:
        start = part.start
        while start < part.end:
            piece = TokenRange(start, min(part.end, start + left))
            group.append(piece)
            start, left = piece.end, left - len(piece)
            if not left or len(group) == max_rows:
                yield group
                group, left = [], max_tokens
    if group:
        yield group
