"""libcachesim on our references: block by block from Python for parity, from a binary file in C for speed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcachesim
import numpy as np
from numpy.typing import NDArray

CACHES: dict[str, Any] = {
    "lru": libcachesim.LRU,
    "fifo": libcachesim.FIFO,
    "s3fifo": libcachesim.S3FIFO,
    "sieve": libcachesim.Sieve,
    "arc": libcachesim.ARC,
}
_NEVER_EXPIRES = 86_400 * 3_000


@dataclass(frozen=True, slots=True)
class RivalRun:
    hit_ratio: float
    wall_seconds: float
    cpu_seconds: float


def hits_one_by_one(policy: str, blocks: NDArray[np.int32], capacity: int) -> NDArray[np.bool_]:
    """Whether each reference hit. Ids start at 1: libcachesim keeps 0 for itself."""
    cache = CACHES[policy](capacity, default_ttl=_NEVER_EXPIRES, hashpower=18)
    request = libcachesim.Request()
    request.obj_size = 1
    hits = np.zeros(len(blocks), np.bool_)
    for number, block in enumerate(blocks.tolist()):
        request.obj_id = block + 1
        request.clock_time = number
        hits[number] = cache.get(request)
    return hits


def write_references(path: Path, chunks: list[NDArray[np.int32]]) -> None:
    """The ids alone, four bytes each."""
    with path.open("wb") as stream:
        for chunk in chunks:
            stream.write((chunk + 1).astype("<u4").tobytes())


def replay_file(policy: str, path: Path, capacity: int) -> RivalRun:
    """Its own loop in C over its own reader; reading the file (from memory, after the first time) is in the time."""
    options = libcachesim.ReaderInitParam(binary_fmt_str="<I", ignore_obj_size=True)
    options.obj_id_field = 1
    options.time_field = 0
    reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.BIN_TRACE, options)
    cache = CACHES[policy](capacity, default_ttl=_NEVER_EXPIRES, hashpower=20)
    wall, cpu = time.perf_counter(), time.process_time()
    miss_ratio, _ = cache.process_trace(reader)
    return RivalRun(1.0 - miss_ratio, time.perf_counter() - wall, time.process_time() - cpu)
