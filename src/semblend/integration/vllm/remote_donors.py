"""Donors of other replicas, on the scheduler's side: looked up when a request arrives, fetched if it would use them.

A search runs on a thread of its own: the directory suggests, and a planner that knows the suggested donors and the own
ones judges whether fetching them would let the request reuse more. A request waits until its donors are stored here or
its time is over; then the usual look-up serves it. From then on a fetched donor is like any other, even if it is late.
A store that fails is not asked for a while, and a request does not wait for a fetch that another one gave up.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from semblend.contract import FaultContained, TokenRange
from semblend.fleet.audit import MAX_DEVIATION
from semblend.fleet.directory.base import DirectoryError
from semblend.fleet.donor_parts import DonorPart
from semblend.fleet.sealed_donors import FetchOutcome
from semblend.fleet.store_pause import StorePause
from semblend.fleet.suggestions import RemoteDonor, suggest
from semblend.fleet.worth import FetchWorth
from semblend.integration.border import Border
from semblend.integration.core.donor_judge import MIN_GAIN_TOKENS, DonorJudge
from semblend.integration.core.fleet_identity import model_content, space_identity
from semblend.integration.vllm.audits import Audits
from semblend.integration.vllm.commands import (
    MAX_FETCHES,
    READERS,
    CaptureCommand,
    FetchCommand,
    PublishCommand,
    StepReport,
)
from semblend.pipeline.planner import Planner
from semblend.plan.reuse_cost import ReuseCost, pass_work

if TYPE_CHECKING:
    from collections.abc import Callable

    from semblend.contract import Namespace
    from semblend.fleet.donor_object import RowShape
    from semblend.integration.core.fleet_access import FleetAccess
    from semblend.integration.core.metrics import MetricsRecorder
    from semblend.integration.fleet_options import FleetOptions
    from semblend.integration.vllm.donor_keeper import DonorKeeper
    from semblend.integration.vllm.request_record import VllmRequest

MAX_SEARCHES: Final = 64
PAUSE_SECONDS: Final = 5.0  # after a fault of the directory
_ANSWERS: Final = {each.value for each in FetchOutcome} - {FetchOutcome.UNREACHABLE.value}  # of a store that is there

logger = logging.getLogger("vllm.semblend")


@dataclass(slots=True, eq=False)
class _Search:
    """A request that waits for donors of the fleet. The search thread sets ``found``; the rest is the scheduler's."""

    record: VllmRequest
    identity: str
    deadline: float
    found: list[DonorPart] | None = None
    is_dropped: bool = False
    fetched: set[str] | None = None  # ids of the donors on their way; None until they are commanded
    asked_s: float = 0.0  # when they were


@dataclass(frozen=True, slots=True, eq=False)
class _Fetch:
    part: DonorPart
    record: VllmRequest
    commanded_s: float

    @property
    def donor_id(self) -> str:
        """In the fleet."""
        return self.part.donor.donor_id


class RemoteDonors:
    """Public methods are called on the scheduler's thread."""

    def __init__(
        self,
        access: FleetAccess,
        shape: RowShape,
        deployment: Namespace,
        planner: Planner,
        donors: DonorKeeper,
        options: FleetOptions,
        block_tokens: int,
        metrics: MetricsRecorder,
        emit: Callable[[FaultContained], None],
        cost: ReuseCost,
    ) -> None:
        self._access = access
        self._shape = shape
        self._donors = donors
        self._wait_s = options.fleet_wait_seconds
        self._clock = time.monotonic
        self._pause = StorePause(self._wait_s)
        self._metrics = metrics
        self._worth = FetchWorth()
        self._cost = cost
        self.audits = Audits(block_tokens)
        self._writers: dict[str, str] = {}  # of fetched donors, by their id here
        self._border = Border(emit, logger)
        self._judge = DonorJudge(planner)
        self._content: str | None = None
        self._searches: dict[str, _Search] = {}
        self._slots = threading.BoundedSemaphore(MAX_SEARCHES)
        self._paused_until = 0.0
        self._own: dict[str, str] = {}  # id in the fleet to the id here, of donors published or fetched
        self._fetches: dict[str, _Fetch] = {}  # on their way, by their id here
        self._commands: list[FetchCommand] = []
        self._sent: list[FetchCommand] = []  # of this step
        self._pool = ThreadPoolExecutor(1, "semblend-fleet")
        self._pool.submit(self._border.call, "fleet", "", partial(self._identify, deployment), None)

    def arrived(self, record: VllmRequest) -> None:
        """Start the search for a new request."""
        self.left(record.request_id)
        identity = self._identity(record.namespace)
        is_wanted = record.hints.reuse and record.is_plain and len(record.tokens) >= MIN_GAIN_TOKENS
        if identity is None or not is_wanted:
            return
        if self._clock() < self._paused_until:
            self._metrics.count("fleet_searches", "paused")
            return
        if self._slots.acquire(blocking=False):
            search = _Search(record, identity, self._clock() + self._wait_s)
            self._searches[record.request_id] = search
            self._pool.submit(self._search, search)

    def waits(self, record: VllmRequest) -> bool:
        """Whether the request's donors may still come in time. Commands their fetches once they are known."""
        search = self._searches.get(record.request_id)
        if search is None:
            return False
        if self._clock() < search.deadline:
            if search.found is None:
                return True
            if search.fetched is None:
                search.fetched = self._fetch(search)
            if any(self._is_awaited(fetch, search.fetched) for fetch in self._fetches.values()):
                return True
        elif search.fetched and any(fetch.donor_id in search.fetched for fetch in self._fetches.values()):
            self._pause.failed(search.asked_s)
        self.left(record.request_id)
        return False

    @property
    def is_awaited(self) -> bool:
        """Whether a request waits for a fetch, not only for a search."""
        return any(search.fetched for search in self._searches.values())

    def left(self, request_id: str) -> None:
        """The request no longer waits. Its fetches continue: they may serve others."""
        if (search := self._searches.pop(request_id, None)) is not None:
            search.is_dropped = True

    def take_fetches(self) -> list[FetchCommand]:
        self._sent, self._commands = self._commands, []
        return self._sent

    def publications(self, captures: list[CaptureCommand]) -> list[PublishCommand]:
        """Donors that this step's slices complete: the workers hand them to the fleet as soon as they are stored."""
        made = []
        for capture in captures:
            found = self._donors.being_captured(capture.donor_id) if capture.is_last else None
            if found is None or (identity := self._identity(found[0].namespace)) is None:
                continue
            if not _is_worth_writing(found[0]):
                continue
            made.append(PublishCommand(capture.donor_id, identity, found[1]))
            self._donors.held.share(capture.donor_id)
            self._remember(self._access.keys(identity).donor_id(found[1]), capture.donor_id)
        return made

    def on_report(self, report: StepReport) -> None:
        for donor_id, done in report.fetched.items():
            if done.read_bytes:
                self._worth.was_read(done.read_bytes, done.read_ms / 1e3)
            self._metrics.record_fetch(done.outcome, done.read_bytes, done.read_ms / 1e3)
            if done.outcome in _ANSWERS:
                self._pause.answered()
            fetch = self._fetches.pop(donor_id, None)
            if fetch is None:
                continue
            if done.outcome == FetchOutcome.UNREACHABLE.value:
                self._pause.failed(fetch.commanded_s)
            if done.outcome != FetchOutcome.FETCHED.value:
                logger.debug("donor %s of the fleet: %s %s", fetch.donor_id, done.outcome, done.detail)
                self._donors.held.give_up(donor_id)
                continue
            self._donors.held.share(donor_id)
            if self._donors.held.store(donor_id, fetch.record, fetch.part.tokens):
                self._stored(donor_id, fetch.part, done.writer)
        for donor_id, worst in report.audited.items():
            self._audited(donor_id, worst)

    def _stored(self, donor_id: str, part: DonorPart, writer: str) -> None:
        if not part.ranges:
            self._remember(part.donor.donor_id, donor_id)
        if len(self._writers) > 2 * len(self._donors) + 1024:
            self._writers = {known: by for known, by in self._writers.items() if known in self._donors}
        self._writers[donor_id] = writer
        self.audits.fetched(donor_id, part)

    def _audited(self, donor_id: str, worst: float | None) -> None:
        """A donor was computed again. If it is wrong, nothing that its writer wrote is used any more."""
        if not self.audits.is_done(donor_id) or worst is None:
            return
        is_wrong = worst > MAX_DEVIATION
        self._metrics.count("fleet_audits", "wrong" if is_wrong else "right")
        if is_wrong:
            writer = self._writers.get(donor_id)
            for known in [known for known, by in self._writers.items() if by == writer]:
                self._donors.held.drop(known, "audit")
                del self._writers[known]

    def lose_commands(self) -> None:
        """This step's commands could not be sent."""
        for command in self._sent + self.take_fetches():
            if self._fetches.pop(command.donor_id, None) is not None:
                self._donors.held.give_up(command.donor_id)
        self._sent = []

    def forget_all(self) -> None:
        """Every donor was dropped here, also those on their way."""
        for request_id in list(self._searches):
            self.left(request_id)
        self._fetches.clear()
        self._commands, self._own, self._writers = [], {}, {}
        self.audits.forget_all()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _identity(self, namespace: Namespace) -> str | None:
        return None if self._content is None else space_identity(namespace, self._content, self._shape)

    def _fetch(self, search: _Search) -> set[str]:
        """Command the fetches of a search; the donors on their way, also for others."""
        if not search.found or self._is_paused(search.found):
            return set()
        search.asked_s = now = self._clock()
        flying = {fetch.donor_id for fetch in self._fetches.values()}
        for part in search.found:
            donor = part.donor
            if donor.donor_id in flying or self._is_known(donor.donor_id) or len(self._fetches) >= MAX_FETCHES:
                continue
            own_id = self._donors.reserve_fetched(search.record, len(donor.tokens))
            if own_id is not None:
                self._fetches[own_id] = _Fetch(part, search.record, now)
                size = len(donor.tokens)
                self._commands.append(FetchCommand(own_id, donor.donor_id, search.identity, size, part.ranges))
                flying.add(donor.donor_id)
        awaited = flying & {part.donor.donor_id for part in search.found}
        if any(self._is_awaited(fetch, awaited) for fetch in self._fetches.values()):
            self._pause.asked()
        return awaited

    def _is_awaited(self, fetch: _Fetch, donor_ids: set[str]) -> bool:
        """Whether a request waits for this fetch: one of its donors, and not given up by another."""
        return fetch.donor_id in donor_ids and not self._is_overdue(fetch)

    def _is_overdue(self, fetch: _Fetch) -> bool:
        return self._clock() - fetch.commanded_s >= self._wait_s

    def _is_paused(self, parts: list[DonorPart]) -> bool:
        """Whether the store is left alone, because it failed or because fetches that hang have all its readers."""
        if not self._pause.is_on and sum(map(self._is_overdue, list(self._fetches.values()))) < READERS:
            return False
        self._metrics.count("fleet_fetches", "paused", len(parts))
        return True

    def _is_known(self, donor_id: str) -> bool:
        """Whether this replica holds the KV; also called on the search thread."""
        return self._own.get(donor_id, "") in self._donors

    def _remember(self, donor_id: str, own_id: str) -> None:
        if len(self._own) > 2 * len(self._donors) + 1024:
            self._own = {known: own for known, own in self._own.items() if own in self._donors}
        self._own[donor_id] = own_id

    # -- on the search thread ------------------------------------------------------------------------------------------

    def _identify(self, deployment: Namespace) -> None:
        self._content = model_content(deployment)
        if self._content is None:
            logger.warning("SemBlend shares no donors: the model's files or its commit are not known")
        else:
            logger.info("SemBlend shares donors with other replicas")

    def _search(self, search: _Search) -> None:
        try:
            if not search.is_dropped:
                look = partial(self._found, search)
                search.found = self._border.call("fleet", search.record.request_id, look, [])
        finally:
            self._slots.release()

    def _found(self, search: _Search) -> list[DonorPart]:
        keys = self._access.keys(search.identity)
        try:
            suggested = suggest(self._access.directory, keys, search.record.tokens, self._is_known)
        except DirectoryError as error:
            logger.debug("%s", error)
            self._paused_until = self._clock() + PAUSE_SECONDS
            self._metrics.count("fleet_searches", "unreachable")
            return []
        found = self._useful(search.record, suggested) if suggested else []
        self._metrics.count("fleet_searches", "found" if found else "nothing")
        return found

    def _useful(self, record: VllmRequest, suggested: list[RemoteDonor]) -> list[DonorPart]:
        """The parts of donors that a plan over suggested and own donors would reuse, if fetching beats computing."""
        useful = self._judge.useful_parts(record.tokens, record.namespace, suggested)
        if useful is None or self._is_paused(useful.parts):
            return []
        size = sum(part.read_bytes(self._shape) for part in useful.parts)
        saved_ms = self._cost.ms(pass_work([TokenRange(0, useful.gained_tokens)]))  # at least: at no context
        if not self._worth.is_worth(size, saved_ms):
            self._metrics.count("fleet_fetches", "not_worth", len(useful.parts))
            return []
        return useful.parts


def _is_worth_writing(record: VllmRequest) -> bool:
    """A prompt that mostly continues another one adds little to what the fleet has."""
    return 2 * record.exact_prefix_tokens <= len(record.tokens)
