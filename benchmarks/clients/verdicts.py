"""Targets of the comparison: the same figures within 5 % on a real server, and no slower than others on a fast one."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.clients.cells import REQUESTS, TPOT, TTFT, Cell, overhead, pairs, ratio
from benchmarks.clients.rounds import Reading
from benchmarks.clients.run_load import NAME as OURS
from benchmarks.clients.servers import Pace
from benchmarks.targets import Verdict

MAX_APART_PERCENT = 5.0
_COMPARED = (("TTFT p50", TTFT), ("TPOT p50", TPOT), ("requests/s", REQUESTS))


def real_verdicts(cells: Sequence[Cell]) -> list[Verdict]:
    verdicts = [
        Verdict(
            f"{_where(cell)}: {name} apart from {OURS}", "<=", MAX_APART_PERCENT, _apart(ratio(cell, ours, of)), "%"
        )
        for cell, ours in pairs(cells)
        for name, of in _COMPARED
    ]
    return [*verdicts, *_error_verdicts(cells), *_token_verdicts(cells)]


def fast_verdicts(cells: Sequence[Cell], pace: Pace) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for cell, ours in pairs(cells):
        faster, late = ratio(cell, ours, REQUESTS), ratio(cell, ours, overhead(pace))
        verdicts += [
            Verdict(f"{_where(cell)}: its requests/s to {OURS}", "<=", 1.0, faster),
            Verdict(f"{_where(cell)}: its TTFT overhead to {OURS}", ">=", 1.0, late),
        ]
    return [*verdicts, *_error_verdicts([cell for cell in cells if cell.client == OURS])]


def _error_verdicts(cells: Sequence[Cell]) -> list[Verdict]:
    return [
        Verdict(f"{_where(cell)}: requests that failed", "==", 0, None if cell.faults else cell.errors)
        for cell in cells
    ]


def _token_verdicts(cells: Sequence[Cell]) -> list[Verdict]:
    """The load is the same if the server counted the same tokens per request of every client."""
    verdicts = []
    for cell in cells:
        wrong = [_wrong_tokens(reading) for reading in cell.readings if reading.figures is not None]
        known = [count for count in wrong if count is not None]
        name = f"{_where(cell)}: tokens in and out beside the load's, as the server counts"
        verdicts.append(Verdict(name, "==", 0, max(known) if known else None, is_law=True))
    return verdicts


def _wrong_tokens(reading: Reading) -> int | None:
    """How many tokens too many or too few; None if the server does not count them."""
    server, load = reading.server, reading.load
    if server.requests is None or server.prompt_tokens is None or server.output_tokens is None:
        return None
    expected = server.requests * load.prompt_tokens, server.requests * load.output_tokens
    return abs(server.prompt_tokens - expected[0]) + abs(server.output_tokens - expected[1])


def _where(cell: Cell) -> str:
    return f"{cell.client}, {cell.concurrency} at a time"


def _apart(of_ours: float | None) -> float | None:
    return None if of_ours is None else 100.0 * abs(of_ours - 1.0)
