"""Donors of other replicas whose KV is in the engine's own storage: looked up, judged and read while requests queue.

One thread searches: the directory suggests, a planner judges whether the donors would let the request reuse more. One
thread reads the pages that a plan would load and verifies each against its tag. A request waits until its donors are
in host memory or its time is over; donors that arrive later serve later requests.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.fleet.directory.base import DirectoryError
from semblend.fleet.donor_parts import NO_TOKEN, DonorPart
from semblend.fleet.page_records import PageRecord, page_digest, read_record
from semblend.fleet.store_pause import StorePause
from semblend.fleet.suggestions import RemoteDonor, suggested_records
from semblend.integration.core.donor_judge import MIN_GAIN_TOKENS, DonorJudge
from semblend.integration.sglang.fetched_pages import FetchedPages
from semblend.integration.sglang.written_pages import bytes_of

if TYPE_CHECKING:
    from semblend.contract import Namespace
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
MAX_READS: Final = 8  # waiting for the storage; further donors are left out
MAX_ABSENT: Final = 1024
PAUSE_SECONDS: Final = 5.0  # after a fault of the directory
ABSENT_SECONDS: Final = 60.0  # that a donor with missing pages is not looked for
REST_S: Final = 0.01
_NOT_READ: Final = torch.empty(0)

logger = logging.getLogger("sglang.semblend")


@dataclass(frozen=True, slots=True, eq=False)
class PagedDonor(RemoteDonor):
    """``tokens`` of pages that its writer does not vouch for are masked; the record has all of them."""

    record: PageRecord


@dataclass(slots=True, eq=False)
class _Read:
    """A donor on its way. The reading thread sets ``is_done``."""

    part: DonorPart
    donor: PagedDonor
    tenant: TreeTenant
    namespace: Namespace
    epoch: int
    asked_s: float
    is_done: bool = False


@dataclass(slots=True, eq=False)
class _Search:
    """A request that waits. The search thread sets ``reads``."""

    rid: str
    tokens: NDArray[np.uint32]
    namespace: Namespace
    tenant: TreeTenant
    deadline: float
    epoch: int
    reads: list[_Read] | None = None
    is_dropped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Fetched:
    read: _Read
    pages: list[torch.Tensor]


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
        self._pause = StorePause(wait_s, clock)
        self._paused_until = 0.0
        self._searches: dict[str, _Search] = {}
        self._slots = threading.BoundedSemaphore(MAX_SEARCHES)
        self._lock = threading.Lock()
        self._reads: dict[str, _Read] = {}  # by the donors' ids in the fleet
        self._absent: OrderedDict[str, float] = OrderedDict()  # donors with missing pages, and until when
        self._own: dict[str, str] = {}  # id in the fleet to the id here, of donors read whole
        self._ready: queue.SimpleQueue[_Fetched] = queue.SimpleQueue()
        self._news = threading.Event()
        self._epoch = 0
        self._serial = 0
        self._finder = ThreadPoolExecutor(1, "semblend-fleet")
        self._reader = ThreadPoolExecutor(1, "semblend-pages")

    def prepare(self, identify: Callable[[], None]) -> None:
        """Before the first search; may take minutes."""
        self._finder.submit(identify)

    def arrived(self, rid: str, tokens: NDArray[np.uint32], namespace: Namespace, tenant: TreeTenant) -> None:
        """Start the search for a request that was queued."""
        self.left(rid)
        if len(tokens) < MIN_GAIN_TOKENS or self._spaces.keys_of(namespace) is None:
            return
        now = self._clock()
        if now < self._paused_until:
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
            if search.reads is None or any(self._is_awaited(read) for read in search.reads):
                return True
        elif hanging := [read.asked_s for read in search.reads or () if not read.is_done]:
            self._pause.failed(min(hanging))
        self.left(rid)
        return False

    @property
    def is_awaited(self) -> bool:
        return bool(self._searches)

    def rest(self) -> None:
        """Wait for news, ``REST_S`` at most: rounds without other work would take the core that the reads need."""
        self._news.wait(REST_S)
        self._news.clear()

    def left(self, rid: str) -> None:
        """The request no longer waits. Its reads continue: they may serve others."""
        if (search := self._searches.pop(rid, None)) is not None:
            search.is_dropped = True

    def take(self) -> None:
        """Make donors that were read findable here."""
        with suppress(queue.Empty):
            while True:
                found = self._ready.get_nowait()
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
        for pool in (self._finder, self._reader):
            pool.shutdown(wait=False, cancel_futures=True)

    def _keep(self, found: _Fetched) -> None:
        for known in self.fetched.ids():
            if known not in self._donors:
                self.fetched.drop(known)
        self._serial += 1
        own_id, part = f"fleet:{found.read.donor.donor_id[:16]}#{self._serial}", found.read.part
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

    def _is_awaited(self, read: _Read) -> bool:
        """A read that another request gave up is not waited for."""
        return not read.is_done and not self._is_overdue(read)

    def _is_overdue(self, read: _Read) -> bool:
        return self._clock() - read.asked_s >= self._wait_s

    # -- on the search thread ------------------------------------------------------------------------------------------

    def _search(self, search: _Search) -> None:
        reads: list[_Read] = []
        try:
            if not search.is_dropped:
                reads = self._border.call("fleet", search.rid, partial(self._started, search), [])
        finally:
            search.reads = reads
            self._slots.release()
            self._news.set()

    def _started(self, search: _Search) -> list[_Read]:
        """The reads that the request may wait for."""
        keys = self._spaces.keys_of(search.namespace)
        if keys is None or self._is_paused():
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
        reads = [] if useful is None else [self._read_of(part, search, keys) for part in useful.parts]
        return [read for read in reads if read is not None]

    def _suggested(self, keys: SpaceKeys, search: _Search) -> list[PagedDonor]:
        found = suggested_records(self._spaces.directory, keys, search.tokens, self._is_known)
        records = (read_record(keys, donor_id, raw, self._source.page_tokens) for donor_id, raw in found)
        return [_donor_of(record) for record in records if record is not None]

    def _is_known(self, donor_id: str) -> bool:
        """Whether this replica holds the KV, or has found that the storage does not."""
        if self._absent.get(donor_id, 0.0) > self._clock():
            return True
        return self._own.get(donor_id, "") in self._donors

    def _is_exact(self, search: _Search) -> bool:
        """Whether the engine itself loads a prefix of the request from the storage, which goes first."""
        pages = -(-self._min_stored_tokens // self._source.page_tokens)
        hashes = self._hashes_of(search.tokens[: pages * self._source.page_tokens], search.tenant)
        return len(hashes) >= pages > 0 and self._source.count_leading(hashes) >= pages

    def _is_paused(self) -> bool:
        """Whether the storage is left alone, because it did not answer in time or a read hangs."""
        with self._lock:
            hangs = any(self._is_overdue(read) for read in self._reads.values())
        return self._pause.is_on or hangs

    def _read_of(self, part: DonorPart, search: _Search, keys: SpaceKeys) -> _Read | None:
        """The read of a donor, which may have been started for another request."""
        donor = part.donor
        assert isinstance(donor, PagedDonor)
        with self._lock:
            if (flying := self._reads.get(donor.donor_id)) is not None:
                return flying
            if len(self._reads) >= MAX_READS:
                self._metrics.count("fleet_fetches", "busy")
                return None
            read = _Read(part, donor, search.tenant, search.namespace, search.epoch, self._clock())
            self._reads[donor.donor_id] = read
        self._pause.asked()
        self._reader.submit(self._read, read, keys)
        return read

    # -- on the reading thread -----------------------------------------------------------------------------------------

    def _read(self, read: _Read, keys: SpaceKeys) -> None:
        started = time.perf_counter()
        outcome, pages = self._border.call("fleet", "", partial(self._fetch, read, keys), ("fault", []))
        seconds = time.perf_counter() - started
        self._metrics.record_fetch(outcome, sum(page.nbytes for page in pages), seconds)
        if outcome != "fault":
            self._pause.answered()
        if outcome == "fetched":
            self._ready.put(_Fetched(read, pages))
        else:
            self._leave_out(read.donor.donor_id)
        with self._lock:
            del self._reads[read.donor.donor_id]
        read.is_done = True
        self._news.set()

    def _fetch(self, read: _Read, keys: SpaceKeys) -> tuple[str, list[torch.Tensor]]:
        """The outcome and, if every page is what its writer computed, the donor's pages."""
        record = read.donor.record
        numbers = _pages_of(read.part, record)
        hashes = self._hashes_of(record.tokens, read.tenant)
        found = self._source.read([hashes[number] for number in numbers])
        if found is None:
            return "missing", []
        pages = [_NOT_READ] * record.pages
        for number, page in zip(numbers, found, strict=True):
            if not record.fits(number, page_digest(bytes_of(page))):
                self._refuse(record, number, keys)
                return "refused", []
            pages[number] = page
        return "fetched", pages

    def _refuse(self, record: PageRecord, page: int, keys: SpaceKeys) -> None:
        """The record is of no use while the storage has other bytes; whoever computes the donor again renews it."""
        logger.warning(
            "SemBlend refused donor %s of the fleet: page %d is not what writer %s announced",
            record.donor_id,
            page,
            record.writer.hex(),
        )
        with suppress(DirectoryError):
            self._spaces.directory.withdraw(keys.space, record.donor_id)

    def _leave_out(self, donor_id: str) -> None:
        """For a while. A storage that is gone looks like one without the pages, so the announcement stays."""
        self._absent[donor_id] = self._clock() + ABSENT_SECONDS
        if len(self._absent) > MAX_ABSENT:
            self._absent.popitem(last=False)


def _donor_of(record: PageRecord) -> PagedDonor:
    tokens = record.tokens.copy()
    for page in range(record.pages):
        if not record.is_tagged(page):
            tokens[page * record.page_tokens : (page + 1) * record.page_tokens] = NO_TOKEN
    return PagedDonor(record.donor_id, tokens, record)


def _pages_of(part: DonorPart, record: PageRecord) -> list[int]:
    """The pages that a part reads: all that are vouched for, or those of its ranges."""
    size = record.page_tokens
    ranges = part.ranges or ((0, len(record.tokens)),)
    touched = [page for start, end in ranges for page in range(start // size, -(-end // size))]
    return [page for page in touched if record.is_tagged(page)]
