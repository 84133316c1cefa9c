"""Reads pages of other replicas' donors on a thread, each verified against its tag; KV in host memory or nothing out.

A storage that does not answer in time is left alone for a while, and no request waits for a read that another gave up.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import torch

from semblend.fleet.directory.base import DirectoryError
from semblend.fleet.donor_parts import DonorPart
from semblend.fleet.page_records import PageRecord, page_digest
from semblend.fleet.store_pause import StorePause
from semblend.integration.sglang.written_pages import bytes_of

if TYPE_CHECKING:
    from semblend.contract import Namespace
    from semblend.fleet.keys import SpaceKeys
    from semblend.integration.border import Border
    from semblend.integration.sglang.donor_announcements import HashesOf
    from semblend.integration.sglang.fleet_spaces import FleetSpaces
    from semblend.integration.sglang.metrics import EngineMetrics
    from semblend.integration.sglang.namespace import TreeTenant
    from semblend.integration.sglang.page_source import PageSource

MAX_READS: Final = 8  # waiting for the storage; further donors are left out
MAX_ABSENT: Final = 1024
ABSENT_SECONDS: Final = 60.0  # that a donor with missing pages is not looked for
_NOT_READ: Final = torch.empty(0)

logger = logging.getLogger("sglang.semblend")


@dataclass(slots=True, eq=False, kw_only=True)
class Read:
    """A donor on its way. The reading thread sets ``is_done``. ``epoch`` is the reader's own affair."""

    part: DonorPart
    record: PageRecord
    tenant: TreeTenant
    namespace: Namespace
    epoch: int
    asked_s: float = 0.0
    is_done: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """``pages`` in the donor's order; those that were not read are empty."""

    read: Read
    pages: list[torch.Tensor]


class PageReads:
    """Thread-safe. ``progress`` is set when a read is done."""

    def __init__(
        self,
        spaces: FleetSpaces,
        source: PageSource,
        hashes_of: HashesOf,
        metrics: EngineMetrics,
        border: Border,
        wait_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``wait_s``: how long a request waits for a read."""
        self.progress = threading.Event()
        self._spaces = spaces
        self._source = source
        self._hashes_of = hashes_of
        self._metrics = metrics
        self._border = border
        self._wait_s = wait_s
        self._clock = clock
        self._pause = StorePause(wait_s, clock)
        self._lock = threading.Lock()
        self._reads: dict[str, Read] = {}  # by the donors' ids in the fleet
        self._absent: OrderedDict[str, float] = OrderedDict()  # donors with missing pages, and until when
        self._ready: queue.SimpleQueue[Fetched] = queue.SimpleQueue()
        self._thread = ThreadPoolExecutor(1, "semblend-pages")

    def start(self, read: Read, keys: SpaceKeys) -> Read | None:
        """The read of a donor, which may have been started for another request; None: too many wait."""
        donor_id = read.record.donor_id
        with self._lock:
            if (flying := self._reads.get(donor_id)) is not None:
                return flying
            if len(self._reads) >= MAX_READS:
                self._metrics.count("fleet_fetches", "busy")
                return None
            read.asked_s = self._clock()
            self._reads[donor_id] = read
        self._pause.asked()
        self._thread.submit(self._read, read, keys)
        return read

    def take(self) -> Iterator[Fetched]:
        """What was read since the last call."""
        with suppress(queue.Empty):
            while True:
                yield self._ready.get_nowait()

    def is_awaited(self, read: Read) -> bool:
        """Whether a request may wait for a read: it runs, and no other request has given it up."""
        return not read.is_done and not self._is_overdue(read)

    def given_up(self, reads: Sequence[Read]) -> None:
        """A request has waited for these as long as it may."""
        if hanging := [read.asked_s for read in reads if not read.is_done]:
            self._pause.failed(min(hanging))

    def is_paused(self) -> bool:
        """Whether the storage is left alone, because it did not answer in time or a read hangs."""
        with self._lock:
            hangs = any(self._is_overdue(read) for read in self._reads.values())
        return self._pause.is_on or hangs

    def is_left_out(self, donor_id: str) -> bool:
        return self._absent.get(donor_id, 0.0) > self._clock()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _is_overdue(self, read: Read) -> bool:
        return self._clock() - read.asked_s >= self._wait_s

    # -- on the reading thread -----------------------------------------------------------------------------------------

    def _read(self, read: Read, keys: SpaceKeys) -> None:
        started = time.perf_counter()
        outcome, pages = self._border.call("fleet", "", partial(self._fetch, read, keys), ("fault", []))
        seconds = time.perf_counter() - started
        self._metrics.record_fetch(outcome, sum(page.nbytes for page in pages), seconds)
        if outcome != "fault":
            self._pause.answered()
        if outcome == "fetched":
            self._ready.put(Fetched(read, pages))
        else:
            self._leave_out(read.record.donor_id)
        with self._lock:
            del self._reads[read.record.donor_id]
        read.is_done = True
        self.progress.set()

    def _fetch(self, read: Read, keys: SpaceKeys) -> tuple[str, list[torch.Tensor]]:
        """The outcome and, if every page is what its writer computed, the donor's pages."""
        record = read.record
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
        """Of no use while the storage has other bytes; a replica that computes the donor again renews it."""
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


def _pages_of(part: DonorPart, record: PageRecord) -> list[int]:
    """The pages that a part reads: all that are vouched for, or those of its ranges."""
    size = record.page_tokens
    ranges = part.ranges or ((0, len(record.tokens)),)
    touched = [page for start, end in ranges for page in range(start // size, -(-end // size))]
    return [page for page in touched if record.is_tagged(page)]
