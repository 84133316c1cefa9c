"""Donors of other replicas whose KV is in the engine's own storage: looked up, judged and read while requests queue.

A thread searches: the directory suggests, a planner judges whether the donors would let the request reuse more, and the
pages that a plan would load are read (``page_reads``). A request waits until its donors are in host memory or its time
is over; donors that arrive later serve later requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from semblend.fleet.directory.base import DirectoryError
from semblend.fleet.donor_parts import NO_TOKEN
from semblend.fleet.page_records import PageRecord, read_record
from semblend.fleet.suggestions import RemoteDonor, suggested_records
from semblend.integration.core.donor_judge import MIN_GAIN_TOKENS, DonorJudge
from semblend.integration.sglang.fetched_pages import FetchedPages
from semblend.integration.sglang.page_reads import Fetched, PageReads, Read

if TYPE_CHECKING:
    from semblend.contract import Namespace
    from semblend.fleet.donor_parts import DonorPart
    from semblend.fleet.keys import SpaceKeys
    from semblend.integration.border import Border
    from semblend.integration.sglang.donor_announcements import HashesOf
    from semblend.integration.sglang.donors import Donors
    from semblend.integration.sglang.fleet_spaces import FleetSpaces
    from semblend.integration.sglang.metrics import EngineMetrics
    from semblend.integration.sglang.namespace import TreeTenant
    from semblend.integration.sglang.page_source import PageSource
    from semblend.pipeline.planner import Planner

MAX_SEARCHES: Final = 64
PAUSE_SECONDS: Final = 5.0  # after a fault of the directory
REST_S: Final = 0.01

logger = logging.getLogger("sglang.semblend")


@dataclass(frozen=True, slots=True, eq=False)
class PagedDonor(RemoteDonor):
    """``tokens`` of pages that its writer does not vouch for are masked; the record has all of them."""

    record: PageRecord


@dataclass(slots=True, eq=False)
class _Search:
    """A request that waits. The search thread sets ``reads``."""

    rid: str
    tokens: NDArray[np.uint32]
    namespace: Namespace
    tenant: TreeTenant
    deadline: float
    epoch: int
    reads: list[Read] | None = None
    is_dropped: bool = False


class BorrowedDonors:
    """Public methods are called on the scheduler's thread."""

    def __init__(
        self,
        spaces: FleetSpaces,
        source: PageSource,
        hashes_of: HashesOf,
        planner: Planner,
        donors: Donors,
        metrics: EngineMetrics,
        border: Border,
        *,
        wait_s: float,
        host_bytes: int,
        min_stored_tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``min_stored_tokens``: from so many on the engine itself loads a prefix that its storage has."""
        self.fetched = FetchedPages(host_bytes)
        self._spaces = spaces
        self._source = source
        self._hashes_of = hashes_of
        self._donors = donors
        self._metrics = metrics
        self._border = border
        self._wait_s = wait_s
        self._min_stored_tokens = min_stored_tokens
        self._clock = clock
        self._judge = DonorJudge(planner, source.page_tokens, planner.gates.boundary_recompute_tokens)
        self._paused_until = 0.0
        self._reads = PageReads(spaces, source, hashes_of, metrics, border, wait_s, clock)
        self._searches: dict[str, _Search] = {}
        self._searching_since: float | None = None  # the search that the thread is at
        self._slots = threading.BoundedSemaphore(MAX_SEARCHES)
        self._own: dict[str, str] = {}  # id in the fleet to the id here, of donors read whole
        self._epoch = 0
        self._serial = 0
        self._finder = ThreadPoolExecutor(1, "semblend-fleet")

    def prepare(self, identify: Callable[[], None]) -> None:
        """Before the first search; may take minutes."""
        self._finder.submit(identify)

    def arrived(self, rid: str, tokens: NDArray[np.uint32], namespace: Namespace, tenant: TreeTenant) -> None:
        """Start the search for a request that was queued."""
        self.left(rid)
        if len(tokens) < MIN_GAIN_TOKENS or self._spaces.keys_of(namespace) is None:
            return
        now = self._clock()
        if now < self._paused_until or self._reads.is_paused() or self._hangs(now):
            self._metrics.count("fleet_searches", "paused")
        elif self._slots.acquire(blocking=False):
            search = _Search(rid, tokens, namespace, tenant, now + self._wait_s, self._epoch)
            self._searches[rid] = search
            self._finder.submit(self._search, search)

    def waits(self, rid: str) -> bool:
        """Whether the request's donors may still come in time."""
        search = self._searches.get(rid)
        if search is None:
            return False
        if self._clock() < search.deadline:
            if search.reads is None or any(map(self._reads.is_awaited, search.reads)):
                return True
        else:
            self._reads.given_up(search.reads or ())
        self.left(rid)
        return False

    @property
    def is_awaited(self) -> bool:
        return bool(self._searches)

    def rest(self) -> None:
        """Wait for progress, ``REST_S`` at most: rounds without other work would take the core that the reads need."""
        self._reads.progress.wait(REST_S)
        self._reads.progress.clear()

    def left(self, rid: str) -> None:
        """The request no longer waits. Its reads continue: they may serve others."""
        if (search := self._searches.pop(rid, None)) is not None:
            search.is_dropped = True

    def take(self) -> None:
        """Make donors that were read findable here."""
        for found in self._reads.take():
            if found.read.epoch == self._epoch:
                self._keep(found)

    def forget_all(self) -> None:
        """Every donor was dropped here; those on their way are ignored when they arrive."""
        self._epoch += 1
        for rid in list(self._searches):
            self.left(rid)
        self._own = {}
        self.fetched.clear()

    def close(self) -> None:
        self._finder.shutdown(wait=False, cancel_futures=True)
        self._reads.close()

    def _hangs(self, now: float) -> bool:
        """Whether the search thread waits for a storage that does not answer."""
        since = self._searching_since
        return since is not None and now - since >= self._wait_s

    def _keep(self, found: Fetched) -> None:
        for known in self.fetched.ids():
            if known not in self._donors:
                self.fetched.drop(known)
        self._serial += 1
        own_id, part = f"fleet:{found.read.record.donor_id[:16]}#{self._serial}", found.read.part
        evicted = self.fetched.put(own_id, found.pages)
        for other in evicted:
            self._donors.drop(other, "host_full")
        if own_id in evicted:
            return
        if not self._donors.borrow(own_id, part.tokens, found.read.namespace):
            self.fetched.drop(own_id)
        elif not part.ranges:
            self._own = {known: own for known, own in self._own.items() if own in self._donors}
            self._own[part.donor.donor_id] = own_id

    # -- on the search thread ------------------------------------------------------------------------------------------

    def _search(self, search: _Search) -> None:
        reads: list[Read] = []
        self._searching_since = self._clock()
        try:
            if not search.is_dropped:
                reads = self._border.call("fleet", search.rid, partial(self._started, search), [])
        finally:
            self._searching_since = None
            search.reads = reads
            self._slots.release()
            self._reads.progress.set()

    def _started(self, search: _Search) -> list[Read]:
        """The reads that the request may wait for."""
        keys = self._spaces.keys_of(search.namespace)
        if keys is None or self._reads.is_paused():
            return []
        try:
            suggested = self._suggested(keys, search)
        except DirectoryError as error:
            logger.debug("%s", error)
            self._paused_until = self._clock() + PAUSE_SECONDS
            self._metrics.count("fleet_searches", "unreachable")
            return []
        useful = self._judge.useful_parts(search.tokens, search.namespace, suggested) if suggested else None
        if useful is not None and self._is_exact(search):
            useful = None
        self._metrics.count("fleet_searches", "nothing" if useful is None else "found")
        reads = [] if useful is None else [self._read(part, search, keys) for part in useful.parts]
        return [read for read in reads if read is not None]

    def _read(self, part: DonorPart, search: _Search, keys: SpaceKeys) -> Read | None:
        assert isinstance(part.donor, PagedDonor)
        read = Read(
            part=part,
            record=part.donor.record,
            tenant=search.tenant,
            namespace=search.namespace,
            epoch=search.epoch,
        )
        return self._reads.start(read, keys)

    def _suggested(self, keys: SpaceKeys, search: _Search) -> list[PagedDonor]:
        found = suggested_records(self._spaces.directory, keys, search.tokens, self._is_known)
        records = (read_record(keys, donor_id, raw, self._source.page_tokens) for donor_id, raw in found)
        return [_donor_of(record) for record in records if record is not None]

    def _is_known(self, donor_id: str) -> bool:
        """Whether this replica holds the KV, or has found that the storage does not."""
        return self._reads.is_left_out(donor_id) or self._own.get(donor_id, "") in self._donors

    def _is_exact(self, search: _Search) -> bool:
        """Whether the engine itself loads a prefix of the request from the storage, which goes first."""
        pages = -(-self._min_stored_tokens // self._source.page_tokens)
        hashes = self._hashes_of(search.tokens[: pages * self._source.page_tokens], search.tenant)
        return len(hashes) >= pages > 0 and self._source.count_leading(hashes) >= pages


def _donor_of(record: PageRecord) -> PagedDonor:
    tokens = record.tokens.copy()
    for page in range(record.pages):
        if not record.is_tagged(page):
            tokens[page * record.page_tokens : (page + 1) * record.page_tokens] = NO_TOKEN
    return PagedDonor(record.donor_id, tokens, record)
