"""Donors of other replicas, on a worker's side: fetched into the store, and own ones handed to the fleet, by threads.

A donor is published bytes first, then announced, by one thread: what can be found can be fetched.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.contract import FaultContained
from semblend.fleet.audit import MAX_DEVIATION, deviation
from semblend.fleet.directory.base import DirectoryError
from semblend.fleet.donor_object import WRITER_BYTES, KvBytes, RowShape
from semblend.fleet.sealed_donors import FetchOutcome, SealedDonors
from semblend.fleet.suggestions import announce
from semblend.integration.border import Border
from semblend.integration.vllm.commands import MAX_FETCHES, READERS, FetchCommand, FetchReport, PublishCommand
from semblend.kv.donor_store import KVShape, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semblend.integration.core.fleet_access import FleetAccess
    from semblend.kv.donor_store import DonorStore

MAX_ORIGINS: Final = 4096
REST_S: Final = 0.01  # of a step without work: a request that arrives meanwhile is seen this much later
MAX_PUBLICATIONS: Final = 4  # waiting for the store; their KV stays in memory. Further ones are left out.


def row_shape(shape: KVShape) -> RowShape:
    return RowShape(shape.layers, shape.sides, shape.heads, shape.head_dim * int(shape.dtype.itemsize))


class _Origin(NamedTuple):
    """Where a fetched donor comes from."""

    identity: str
    fleet_id: str
    writer: bytes


class FleetWorker:
    """Public methods are called on the worker's thread, which alone begins, commits and drops donors."""

    def __init__(self, store: DonorStore, shape: KVShape, access: FleetAccess, log: logging.Logger) -> None:
        self._store = store
        self._shape = shape
        self._access = access
        self._log = log
        self._sealed = SealedDonors(access.open_carrier(), row_shape(shape), secrets.token_bytes(WRITER_BYTES))
        self._origins: OrderedDict[str, _Origin] = OrderedDict()  # of fetched donors, by their id here
        self._border = Border(self._note, log)
        self._done: queue.SimpleQueue[tuple[str, FetchReport]] = queue.SimpleQueue()
        self._is_done = threading.Event()  # something may be in the queue
        self._slots = threading.BoundedSemaphore(MAX_PUBLICATIONS)
        self._fetch_slots = threading.BoundedSemaphore(MAX_FETCHES)  # the scheduler forgets fetches when it is reset
        self._readers = ThreadPoolExecutor(READERS, "semblend-fetch")
        self._writer = ThreadPoolExecutor(1, "semblend-publish")

    @property
    def shape(self) -> RowShape:
        return row_shape(self._shape)

    def fetch(self, command: FetchCommand) -> None:
        if not self._fetch_slots.acquire(blocking=False):
            self._report(command.donor_id, FetchReport("busy"))
            return
        try:
            self._store.begin(command.donor_id, command.tokens)
        except StoreError as error:
            self._fetch_slots.release()
            self._report(command.donor_id, _not_stored(error))
            return
        self._readers.submit(self._fetch, command)

    def rest(self) -> None:
        """Wait for a fetch to be done, ``REST_S`` at most: steps without work would take the core that fetches need."""
        self._is_done.wait(REST_S)

    def publish(self, command: PublishCommand) -> None:
        """Hand a stored donor to the fleet. One that is not stored, or comes when too many wait, is left out."""
        try:
            kv = self._store.read(command.donor_id, 0, len(command.token_ids))
        except StoreError:
            return
        if self._slots.acquire(blocking=False):
            self._writer.submit(self._publish, command, kv)

    def audit(
        self, donor_id: str, computed: Sequence[tuple[torch.Tensor, torch.Tensor]], ranges: Sequence[tuple[int, int]]
    ) -> float:
        """How far a fetched donor is from what its tokens give. A wrong one leaves the fleet.

        ``computed``: keys and values per layer, from the first token on. Raises ``StoreError`` if it is not stored.
        """
        size = ranges[-1][1]
        fetched = self._store.read(donor_id, 0, size)
        worst = 0.0
        for layer, sides in enumerate(computed):  # one at a time: a whole donor as 64-bit numbers may be gigabytes
            own = torch.stack([side[:size].to(fetched) for side in sides[: self._shape.sides]])
            worst = max(worst, deviation(_numbers(fetched[layer : layer + 1]), _numbers(own.unsqueeze(0)), ranges))
        origin = self._origins.get(donor_id)
        if worst > MAX_DEVIATION and origin is not None:
            self._log.warning(
                "SemBlend found wrong KV in donor %s of the fleet, by writer %s: it is off by %.0f %%",
                origin.fleet_id,
                origin.writer.hex(),
                100 * worst,
            )
            self._writer.submit(self._border.call, "fleet", "", partial(self._remove, origin), None)
        return worst

    def take_fetched(self) -> dict[str, FetchReport]:
        """Fetches that are done; only what is reported as fetched is in the store."""
        done: dict[str, FetchReport] = {}
        self._is_done.clear()
        with suppress(queue.Empty):
            while True:
                donor_id, report = self._done.get_nowait()
                done[donor_id] = report = self._commit(donor_id, report)
                if report.outcome != FetchOutcome.FETCHED.value:
                    self._store.drop(donor_id)
        return done

    def _commit(self, donor_id: str, report: FetchReport) -> FetchReport:
        if report.outcome == FetchOutcome.FETCHED.value:
            try:
                self._store.commit(donor_id)
            except StoreError as error:
                return _not_stored(error)
        return report

    def _report(self, donor_id: str, report: FetchReport) -> None:
        self._done.put((donor_id, report))
        self._is_done.set()

    def _note(self, fault: FaultContained) -> None:
        """The border has logged it."""

    # -- on other threads ----------------------------------------------------------------------------------------------

    def _fetch(self, command: FetchCommand) -> None:
        report = self._border.call("fleet", "", partial(self._fetched, command), FetchReport("fault"))
        self._fetch_slots.release()
        self._report(command.donor_id, report)

    def _fetched(self, command: FetchCommand) -> FetchReport:
        keys = self._access.keys(command.identity)
        try:
            kv = self._room(command)
        except StoreError as error:  # dropped meanwhile
            return _not_stored(error)
        started = time.perf_counter()
        fetched = self._sealed.fetch(keys, command.fleet_id, command.tokens, kv, command.ranges or None)
        read_ms = (time.perf_counter() - started) * 1e3
        writer = fetched.writer.hex()
        if fetched.outcome is FetchOutcome.FETCHED:
            self._origins[command.donor_id] = _Origin(command.identity, command.fleet_id, fetched.writer)
            if len(self._origins) > MAX_ORIGINS:
                self._origins.popitem(last=False)
            try:
                self._store.filled(command.donor_id)
            except StoreError as error:  # dropped meanwhile
                return _not_stored(error)
        if fetched.outcome in (FetchOutcome.MISSING, FetchOutcome.REFUSED):
            with suppress(DirectoryError):
                self._access.directory.withdraw(keys.space, command.fleet_id)
        if fetched.outcome is FetchOutcome.REFUSED:
            self._log.warning(
                "SemBlend refused donor %s of the fleet, by writer %s: %s", command.fleet_id, writer, fetched.detail
            )
        return FetchReport(fetched.outcome.value, fetched.detail, fetched.read_bytes, read_ms, writer)

    def _room(self, command: FetchCommand) -> KvBytes:
        """The donor's memory in the store. Tokens that are not fetched are zeros, not what was there before."""
        kv: KvBytes = self._store.memory(command.donor_id).view(torch.uint8).numpy()
        end = 0
        for start, next_end in (*command.ranges, (command.tokens, command.tokens)) if command.ranges else ():
            kv[:, :, end:start] = 0
            end = next_end
        return kv

    def _remove(self, origin: _Origin) -> None:
        """From store and directory."""
        self._sealed.remove(origin.fleet_id)
        with suppress(DirectoryError):
            self._access.directory.withdraw(self._access.keys(origin.identity).space, origin.fleet_id)

    def _publish(self, command: PublishCommand, kv: torch.Tensor) -> None:
        try:
            self._border.call("fleet", "", partial(self._published, command, kv), None)
        finally:
            self._slots.release()

    def _published(self, command: PublishCommand, kv: torch.Tensor) -> None:
        keys = self._access.keys(command.identity)
        fleet_id = keys.donor_id(command.token_ids)
        self._sealed.publish(keys, fleet_id, kv.view(torch.uint8).numpy())
        announce(self._access.directory, keys, fleet_id, command.token_ids)


def _numbers(kv: torch.Tensor) -> NDArray[np.floating[Any]]:
    numbers: NDArray[np.floating[Any]] = kv.to("cpu", torch.float64).numpy()
    return numbers


def _not_stored(error: StoreError) -> FetchReport:
    return FetchReport("not_stored", str(error))
