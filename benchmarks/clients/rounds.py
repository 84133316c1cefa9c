"""All clients after each other, round by round: a slow minute of the machine hits every one of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.clients.client import Client, ClientError, Figures
from benchmarks.clients.load import Load, Target
from benchmarks.clients.servers import Account, Accountant
from benchmarks.console import progress


@dataclass(frozen=True, slots=True)
class Reading:
    """One run of one client. ``figures`` is None and ``fault`` says why when it ended without any."""

    client: str
    round: int
    load: Load
    figures: Figures | None
    fault: str | None
    server: Account
    seconds: float
    load_average: float

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def measure_rounds(
    clients: Sequence[Client],
    loads: Sequence[Load],
    rounds: int,
    serving: Callable[[], AbstractContextManager[Target]],
    timeout_s: float,
    keep: Callable[[list[Reading]], None],
) -> list[Reading]:
    """``keep`` gets all readings so far after every round: a run that is broken off leaves what it has seen."""
    readings: list[Reading] = []
    for number in range(rounds):
        for load in loads:
            for client in clients:
                with serving() as target:
                    reading = _measure(client, load, number, target, timeout_s)
                readings.append(reading)
                progress(
                    f"round {number + 1} of {rounds}, {load.concurrency} at a time, {client.name}: {_summary(reading)}"
                )
        keep(readings)
    return readings


def _measure(client: Client, load: Load, number: int, target: Target, timeout_s: float) -> Reading:
    accountant = Accountant(target.url)
    figures, fault, started = None, None, time.monotonic()
    try:
        figures = client.measure(load, target, timeout_s)
    except ClientError as error:
        fault = str(error)
    seconds = time.monotonic() - started
    return Reading(client.name, number, load, figures, fault, accountant.account(), seconds, os.getloadavg()[0])


def _summary(reading: Reading) -> str:
    figures = reading.figures
    if figures is None:
        return f"no figures: {reading.fault}"
    ttft = "-" if figures.ttft_p50_ms is None else f"{figures.ttft_p50_ms:.1f}"
    rate = "-" if figures.requests_per_s is None else f"{figures.requests_per_s:.2f}"
    return f"TTFT {ttft} ms, {rate} requests/s, {figures.errors} errors, {reading.seconds:.0f} s in all"
