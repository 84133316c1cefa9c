"""Faults planted in a worker's transfers while a request is loaded: the claim is made, its KV cannot be had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from semblend.contract import Run
from semblend.kv.donor_store import StoreError

if TYPE_CHECKING:
    from semblend.integration.vllm.transfers import CachedBlocks, Transfers


class Fault(StrEnum):
    DONOR_GONE = "donor_gone"
    STORE_ERROR = "store_error"
    WRONG_VALUES = "wrong_values"  # for the verification of loads to find


class FaultyTransfers:
    """Transfers whose loads go wrong; everything else is passed on."""

    def __init__(self, transfers: Transfers, fault: Fault) -> None:
        self._transfers, self._fault = transfers, fault
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transfers, name)

    def load(self, runs: Sequence[Run], block_ids: Sequence[int], cached: CachedBlocks = ()) -> None:
        """Wrong values are read from the store, wherever else the donors are."""
        self.reads += len(runs)
        if runs and self._fault is Fault.DONOR_GONE:
            raise StoreError(f"no donor '{runs[0].donor_id}' (planted)")
        if self._fault is Fault.STORE_ERROR:
            raise OSError("the store cannot be read (planted)")
        self._transfers.load([part for run in runs for part in _neighbours(run)], block_ids)


def _neighbours(run: Run) -> list[Run]:
    """The run with every token's KV at its neighbour's position, the first one's at the last."""
    if run.length == 1:
        return [run]
    return [
        replace(run, donor_start=run.donor_start + 1, length=run.length - 1),
        replace(run, target_start=run.target_start + run.length - 1, length=1),
    ]


@contextmanager
def planted(connector: Any, fault: Fault) -> Iterator[FaultyTransfers]:
    """``connector``: ours, in this process. Its worker half loads through faulty transfers inside the block."""
    half = connector._worker
    sound = half._transfers
    half._transfers = faulty = FaultyTransfers(sound, fault)
    try:
        yield faulty
    finally:
        half._transfers = sound
