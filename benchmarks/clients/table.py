"""The tables of the comparison: a row per client and concurrency."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.clients.cells import (
    REQUESTS,
    TOKENS,
    TPOT,
    TTFT,
    TTFT_P90,
    Cell,
    Figure,
    beside_ours,
    of_client,
    outside_ms,
    overhead,
    pairs,
    ratio,
    server_ttft,
)
from benchmarks.clients.run_load import NAME as OURS
from benchmarks.clients.servers import Pace
from benchmarks.console import show_table
from benchmarks.targets import Spread

_SHOWN: tuple[tuple[str, Figure], ...] = (
    ("TTFT p50 ms", TTFT),
    ("TTFT p90 ms", TTFT_P90),
    ("TPOT p50 ms", TPOT),
    ("requests/s", REQUESTS),
    ("output tokens/s", TOKENS),
)


def show_figures(cells: Sequence[Cell]) -> None:
    columns = ("client", "at a time", "rounds", "errors", *(name for name, _ in _SHOWN))
    rows = [(*_head(cell), cell.errors, *(_spread(cell, figure) for _, figure in _SHOWN)) for cell in cells]
    show_table("What each client read: median over rounds [least, most]", columns, rows)
    against = [
        (c.client, c.concurrency, *(_shown(ratio(c, ours, figure)) for _, figure in _SHOWN)) for c, ours in pairs(cells)
    ]
    show_table(f"Ratio to {OURS}, round by round", ("client", "at a time", *(name for name, _ in _SHOWN)), against)


def show_server_side(cells: Sequence[Cell]) -> None:
    """Where a difference comes from: what the server's own clock saw of each client, and what lies outside it."""
    rows = [
        (
            *_head(cell),
            _spread(cell, of_client("ttft_mean_ms")),
            _spread(cell, server_ttft),
            _spread(cell, outside_ms),
            None if ours is None else _shown(ratio(cell, ours, server_ttft)),
        )
        for cell, ours in beside_ours(cells)
    ]
    columns = (
        "client",
        "at a time",
        "rounds",
        "TTFT mean ms",
        "by the server's clock",
        "outside it",
        f"server's to {OURS}",
    )
    show_table("Where a difference comes from: the server's own TTFT for each client", columns, rows)


def show_speed(cells: Sequence[Cell], pace: Pace, output_tokens: int) -> None:
    rows = []
    for cell, ours in beside_ours(cells):
        peak = Spread.of([r.server.peak_streams for r in cell.readings if r.server.peak_streams is not None])
        rows.append(
            (
                *_head(cell),
                cell.errors,
                _spread(cell, REQUESTS),
                f"{pace.most_requests_per_s(cell.concurrency, output_tokens):.0f}",
                _spread(cell, overhead(pace)),
                None if peak is None else f"{peak.low:.0f}",
                None if ours is None else _shown(ratio(cell, ours, REQUESTS)),
            )
        )
    columns = (
        "client",
        "at a time",
        "rounds",
        "errors",
        "requests/s",
        "of at most",
        "TTFT overhead ms",
        "at once, least",
    )
    title = f"A server that answers {output_tokens} tokens after {pace.ttft_ms:g} ms, one each {pace.itl_ms:g} ms"
    show_table(title, (*columns, f"requests/s to {OURS}"), rows)


def _head(cell: Cell) -> tuple[object, ...]:
    done = len(cell.readings) - cell.faults
    return (cell.client, cell.concurrency, done if not cell.faults else f"{done} of {len(cell.readings)}")


def _spread(cell: Cell, figure: Figure) -> str | None:
    spread = cell.spread(figure)
    return None if spread is None else f"{_shown(spread.p50)} [{_shown(spread.low)}, {_shown(spread.high)}]"


def _shown(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
