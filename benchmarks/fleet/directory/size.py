"""Bytes and time of the directory as it grows: random anchors through the client that servers use.

Keyed anchors are uniform 64-bit values, so drawn ones cost what real ones cost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.fleet.directory.bulk import BulkWriter, random_ids
from benchmarks.targets import Spread
from semblend.fleet.directory.valkey import ValkeyDirectory
from semblend.fleet.keys import ID_BYTES

DONOR_ANCHORS = 118  # of a donor of 2,048 tokens
PROMPT_ANCHORS = 242  # of a prompt of 4,096 tokens
SPACE = bytes(8)
BULK_DONORS = 128  # in one batch


@dataclass(frozen=True, slots=True)
class SizeReading:
    anchors: int
    bytes_per_anchor: float
    announced_per_s: float
    look_up_p50_ms: float
    look_up_p99_ms: float
    server_us: float  # of a look-up, by the servers' own count

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def grow(
    directory: ValkeyDirectory,
    servers: Sequence[Any],
    steps: list[int],
    look_ups: int,
    seed: int,
    *,
    is_bulk: bool = False,
) -> list[SizeReading]:
    """``servers``: clients of the directory's servers. ``steps`` are numbers of anchors, ascending.

    Records are left out: they are 4 bytes per token and counted so. ``is_bulk``: the same entries as raw commands, to
    the first server; multiples of 118 anchors.
    """
    random = np.random.default_rng(seed)
    writer = BulkWriter(servers[0], SPACE) if is_bulk else None
    empty = _used(servers)
    held: list[np.ndarray] = []
    readings, count = [], 0
    for step in steps:
        started, before = time.perf_counter(), count
        while count < step:
            if writer is not None:
                donors = min(BULK_DONORS, -(-(step - count) // DONOR_ANCHORS))
                table = random.integers(0, 1 << 64, (donors, DONOR_ANCHORS), dtype=np.uint64)
                writer.announce(random_ids(random, donors), table)
                count += table.size
                held.append(table[:, :2].ravel())
                continue
            anchors = random.integers(0, 1 << 64, min(DONOR_ANCHORS, step - count), dtype=np.uint64)
            directory.announce(SPACE, random.bytes(ID_BYTES).hex(), b"", anchors)
            count += len(anchors)
            held.append(anchors[:2])
        seconds = time.perf_counter() - started
        # Empty records stay out of the figure as far as their keys and values go: one per 118 anchors remains.
        for server in servers:
            server.config_resetstat()
        times = _look_up_times(directory, np.concatenate(held), look_ups, random)
        spread = Spread.of(times)
        assert spread is not None
        spent = sum(server.info("commandstats")["cmdstat_mget"]["usec"] for server in servers)
        readings.append(
            SizeReading(
                anchors=count,
                bytes_per_anchor=(_used(servers) - empty) / count,
                announced_per_s=(count - before) / seconds,
                look_up_p50_ms=spread.p50,
                look_up_p99_ms=spread.p99,
                server_us=spent / look_ups,
            )
        )
    if writer is not None:
        writer.close()
    return readings


def _look_up_times(
    directory: ValkeyDirectory, known: np.ndarray, count: int, random: np.random.Generator
) -> list[float]:
    """Half of a prompt's anchors are known."""
    times = []
    for _ in range(count):
        half = random.choice(known, PROMPT_ANCHORS // 2)
        anchors = np.concatenate([half, random.integers(0, 1 << 64, PROMPT_ANCHORS - half.size, dtype=np.uint64)])
        started = time.perf_counter()
        directory.look_up(SPACE, anchors)
        times.append((time.perf_counter() - started) * 1e3)
    return times


def _used(servers: Sequence[Any]) -> int:
    return sum(int(server.info("memory")["used_memory"]) for server in servers)
