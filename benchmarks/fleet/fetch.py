"""``python -m benchmarks.fleet.fetch``: a donor from a real Mooncake Store into host memory, without an engine.

Donor sizes in, milliseconds out: a verified fetch in all, and the store's read alone.
"""

from __future__ import annotations

import argparse
import os
import secrets
import time
from typing import Any

import numpy as np
import torch
from scripts.engines.mooncake import mooncake_missing, start_mooncake
from scripts.models.known import MODELS, SMOLLM2

from benchmarks.console import progress, show_table
from benchmarks.estimates import median_and_range
from benchmarks.fleet.replicas import STORE_BYTES
from benchmarks.vllm.workload import SIZES
from semblend.fleet.carrier.base import KvCarrier, open_carrier
from semblend.fleet.donor_object import WRITER_BYTES, RowShape
from semblend.fleet.keys import SpaceKeys
from semblend.fleet.sealed_donors import FetchOutcome, SealedDonors
from semblend.kv.donor_store import KVShape
from semblend.kv.host_store import HostStore


class _Timed:
    """A carrier whose reads are timed."""

    def __init__(self, carrier: KvCarrier) -> None:
        self._carrier = carrier
        self.read_ms: list[float] = []

    def read(self, *given: Any) -> bool:
        started = time.perf_counter()
        found = self._carrier.read(*given)
        self.read_ms.append((time.perf_counter() - started) * 1e3)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._carrier, name)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet.fetch", description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["2K", "4K"])
    parser.add_argument("--model", choices=MODELS, default=SMOLLM2.name)
    parser.add_argument("--fetches", type=int, default=15, help="per size")
    chosen = parser.parse_args()
    if (missing := mooncake_missing()) is not None:
        progress(f"nothing measured: {missing}")
        return 3
    model = MODELS[chosen.model]
    shape = KVShape(model.layers, model.kv_heads, model.head_dim, torch.float32)
    rows = []
    with start_mooncake(STORE_BYTES) as mooncake:
        for size in chosen.sizes:
            carrier = _Timed(open_carrier(mooncake.url, STORE_BYTES))
            fetch_ms = _fetch(carrier, shape, SIZES[size], chosen.fetches + 1)[1:]  # the first one connects
            megabytes = shape.bytes_per_token * SIZES[size] / 1e6
            rows.append(
                (
                    size,
                    f"{megabytes:.0f}",
                    len(fetch_ms),
                    *(median_and_range(each) for each in (fetch_ms, carrier.read_ms[1:])),
                )
            )
    columns = ("donor", "MB", "n", "fetch ms, median (range)", "of it the store's read")
    show_table(f"A fetch without an engine, load {os.getloadavg()[0]:.1f}", columns, rows)
    return 0


def _fetch(carrier: Any, shape: KVShape, tokens: int, count: int) -> list[float]:
    keys = SpaceKeys.derive(secrets.token_bytes(32), "fetch")
    donor_id = keys.donor_id(np.arange(tokens, dtype=np.uint32))
    rows = RowShape(shape.layers, shape.sides, shape.heads, shape.head_dim * shape.dtype.itemsize)
    sealed = SealedDonors(carrier, rows, secrets.token_bytes(WRITER_BYTES))
    kv = torch.randn(shape.layers, shape.sides, tokens, shape.heads, shape.head_dim)
    sealed.publish(keys, donor_id, kv.view(torch.uint8).numpy())
    fetch_ms = []
    store = HostStore(shape)
    for _ in range(count):
        started = time.perf_counter()
        store.begin(donor_id, tokens)
        into = store.memory(donor_id).view(torch.uint8).numpy()
        outcome = sealed.fetch(keys, donor_id, tokens, into).outcome
        fetch_ms.append((time.perf_counter() - started) * 1e3)
        assert outcome is FetchOutcome.FETCHED, outcome
        store.drop(donor_id)
        del into
    return fetch_ms


if __name__ == "__main__":
    raise SystemExit(main())
