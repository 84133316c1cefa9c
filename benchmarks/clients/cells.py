"""All rounds of one client at one concurrency: medians, spreads, and ratios to ``run-load``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.clients.rounds import Reading
from benchmarks.clients.run_load import NAME as OURS
from benchmarks.clients.servers import Pace
from benchmarks.targets import Spread

Figure = Callable[[Reading], float | None]


def of_client(name: str) -> Figure:
    """A figure of the client's own."""

    def get(reading: Reading) -> float | None:
        value: float | None = None if reading.figures is None else getattr(reading.figures, name)
        return value

    return get


TTFT, TTFT_P90, TPOT = of_client("ttft_p50_ms"), of_client("ttft_p90_ms"), of_client("tpot_p50_ms")
REQUESTS, TOKENS = of_client("requests_per_s"), of_client("output_tokens_per_s")


def server_ttft(reading: Reading) -> float | None:
    return reading.server.ttft_mean_ms


def outside_ms(reading: Reading) -> float | None:
    mine = None if reading.figures is None else reading.figures.ttft_mean_ms
    theirs = reading.server.ttft_mean_ms
    return None if mine is None or theirs is None else mine - theirs


def overhead(pace: Pace) -> Figure:
    """What the median TTFT has beyond the pause the stand-in makes: client, loopback and a late server together."""

    def get(reading: Reading) -> float | None:
        ttft = TTFT(reading)
        return None if ttft is None else ttft - pace.ttft_ms

    return get


@dataclass(frozen=True, slots=True)
class Cell:
    """All rounds of one client at one concurrency."""

    client: str
    concurrency: int
    readings: tuple[Reading, ...]

    def spread(self, figure: Figure) -> Spread | None:
        return Spread.of([value for reading in self.readings if (value := figure(reading)) is not None])

    def median(self, figure: Figure) -> float | None:
        spread = self.spread(figure)
        return None if spread is None else spread.p50

    @property
    def errors(self) -> int:
        return sum(reading.figures.errors for reading in self.readings if reading.figures is not None)

    @property
    def faults(self) -> int:
        return sum(reading.figures is None for reading in self.readings)


def cells_of(readings: Sequence[Reading]) -> list[Cell]:
    """In the order of measuring."""
    grouped: dict[tuple[int, str], list[Reading]] = {}
    for reading in readings:
        grouped.setdefault((reading.load.concurrency, reading.client), []).append(reading)
    return [Cell(client, concurrency, tuple(of)) for (concurrency, client), of in grouped.items()]


def pairs(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """(another client, ours at the same concurrency)."""
    ours = {cell.concurrency: cell for cell in cells if cell.client == OURS}
    return [(c, ours[c.concurrency]) for c in cells if c.client != OURS and c.concurrency in ours]


def ratio(cell: Cell, ours: Cell, figure: Figure) -> float | None:
    """The median over rounds of theirs / ours of the same round, so that a slow minute is in both."""
    base = {reading.round: figure(reading) for reading in ours.readings}
    ratios = []
    for reading in cell.readings:
        theirs, mine = figure(reading), base.get(reading.round)
        if theirs is not None and mine:
            ratios.append(theirs / mine)
    spread = Spread.of(ratios)
    return None if spread is None else spread.p50


def beside_ours(cells: Sequence[Cell]) -> list[tuple[Cell, Cell | None]]:
    ours = {cell.concurrency: cell for cell in cells if cell.client == OURS}
    return [(cell, ours.get(cell.concurrency)) for cell in cells]
