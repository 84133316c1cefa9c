"""The life of a donor: selected after its prefill, copied by the workers, findable once complete, then evicted."""

from __future__ import annotations

import dataclasses
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import DonorError
from semblend.contract import (
    DeclineReason,
    Event,
    FaultContained,
    Namespace,
    ReusePlan,
    TokenRange,
)
from semblend.integration.announce import SILENT, Announcer
from semblend.integration.core.donor_book import Donor, DonorBook
from semblend.integration.core.findable_donors import FindableDonors
from semblend.integration.core.metrics import MetricsRecorder
from semblend.integration.vllm.cached_donors import CachedDonors
from semblend.integration.vllm.capture import CaptureJob, CaptureQueue
from semblend.integration.vllm.commands import CaptureCommand, PrefillCommand, StepReport
from semblend.integration.vllm.options import ConnectorOptions
from semblend.integration.vllm.passage_prefill import (
    HEAD_TOKENS,
    MAX_HELD_FRACTION,
    PassageJob,
    PassageQueue,
    passage_text,
)
from semblend.integration.vllm.repair import RepairJob
from semblend.integration.vllm.request_record import VllmRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from semblend.integration.texts import TextDecoder
    from semblend.pipeline.planner import Planner


DECISIONS_PER_STEP: Final = 4  # each costs a look-up on the scheduler's thread


@dataclasses.dataclass(frozen=True, slots=True)
class _Capture:
    """A donor being copied, which is not findable yet."""

    record: VllmRequest
    tokens: NDArray[np.uint32]

    @property
    def request_id(self) -> str:
        return self.record.request_id

    @property
    def namespace(self) -> Namespace:
        return self.record.namespace


class DonorKeeper:
    """Keeps planner, book and copies consistent: every findable donor is stored on every rank or was computed into the
    engine's cache and not copied, and nothing else is findable.
    """

    def __init__(
        self,
        options: ConnectorOptions,
        planner: Planner,
        decoder: TextDecoder | None,
        metrics: MetricsRecorder,
        emit: Callable[[Event], None],
        *,
        cached: CachedDonors,
        block_tokens: int,
        bytes_per_token: int,
        ranks: int,
        announcer: Announcer = SILENT,
    ) -> None:
        self._options = options
        self._planner = planner
        self._decoder = decoder
        self._metrics = metrics
        self._emit = emit
        self._announcer = announcer
        self._cached = cached
        self._block_tokens = block_tokens
        self._ranks = ranks
        self._book = DonorBook(options.host_bytes)
        self._findable = FindableDonors(planner, emit, announcer)
        self._captures = CaptureQueue(options, self._book, block_tokens, bytes_per_token, self._evicted, self._given_up)
        self._passages = PassageQueue()
        self._copying: dict[str, PassageJob] = {}  # prefilled in isolation, and being copied into the store
        self._passages_left: list[tuple[VllmRequest, list[TokenRange]]] = []
        self._unheld: list[str] = []
        self._candidates: dict[str, tuple[VllmRequest, int]] = {}
        self._capturing: dict[str, _Capture] = {}
        self._ranks_stored: dict[str, int] = {}
        self._last_gauges = (-1, -1)
        self._session = secrets.token_hex(4)
        self._serial = 0

    def __len__(self) -> int:
        return len(self._book)

    def __contains__(self, donor_id: str) -> bool:
        return donor_id in self._book

    @property
    def version(self) -> int:
        """Changes with the set of donors that can be found."""
        return self._findable.version

    @property
    def bytes_held(self) -> int:
        return self._book.bytes_held

    @property
    def has_waiting_blocks(self) -> bool:
        return bool(self._captures.waiting_blocks or len(self._passages) or self._unheld)

    @property
    def held_blocks(self) -> int:
        """Blocks of finished requests that wait for a copy or are lent to isolated prefills."""
        return self._captures.waiting_blocks + self._passages.held_blocks

    @property
    def is_lending(self) -> bool:
        """Whether isolated prefills hold blocks of finished requests."""
        return bool(len(self._passages))

    def can_find(self, plan: ReusePlan) -> bool:
        """Whether no donor of the plan was evicted since it was made."""
        return all(donor_id in self._planner for donor_id in plan.donor_ids)

    def used(self, plan: ReusePlan) -> None:
        for donor_id in plan.donor_ids:
            self._book.touch(donor_id)

    def consider(self, record: VllmRequest, tokens: int) -> None:
        """The first ``tokens`` of this request will have exact KV; once it is computed, decide whether to keep it."""
        is_wanted = self._planner.settings.enabled and record.donor_id is None and record.namespace.is_known
        if is_wanted and tokens >= self._options.min_capture_tokens:
            self._candidates[record.request_id] = (record, tokens)

    def leave(self, request_id: str) -> None:
        """The request will not have exact KV, or is gone."""
        self._candidates.pop(request_id, None)
        self._captures.cancel(request_id)

    def give_up_captures(self, lost: list[CaptureCommand]) -> list[str]:
        """Stop every copy, and those whose slices were ``lost``; the finished requests that waited for one."""
        self._give_up([command.donor_id for command in lost])
        return [command.request_id for command in lost if command.release] + self._let_go()

    def abandon(self, request_id: str) -> None:
        """Clean up after a fault at the end of a request: its blocks are freed, so nothing may be copied from them."""
        self._candidates.pop(request_id, None)
        self._captures.abandon(request_id)
        if (prefill := self._passages.drop(request_id)) is not None and prefill.copy is not None:
            self._captures.give_up(prefill.copy)

    def lose(self, report: StepReport) -> None:
        """The report could not be processed: the donors it names are given up, on both sides."""
        self._give_up([*report.stored, *report.capture_faults, *report.prefill_faults])

    def _give_up(self, donor_ids: list[str]) -> None:
        for donor_id in donor_ids:
            self._given_up(donor_id)
            self._planner.forget(donor_id)
            self._book.remove(donor_id)
            self._announcer.withdrawn(donor_id, "given_up")
            self._captures.drop_donor(donor_id)
            if (request_id := self._captures.stop_waiting(donor_id)) is not None:
                self._unheld.append(request_id)
            if (prefill := self._passages.drop_donor(donor_id)) is not None:
                self._end_prefill(prefill)

    def offer_passages(
        self, record: VllmRequest, novel: list[TokenRange], block_ids: list[int], total_blocks: int
    ) -> bool:
        """A blended request is finished. True when its blocks must wait for an isolated prefill of ``novel``."""
        room = sum(len(part) for part in novel) + HEAD_TOKENS
        held = self.held_blocks + len(block_ids)
        may_lend = held <= MAX_HELD_FRACTION * total_blocks and self._passages.has_room(room)
        if not self._options.prefill_passages or not may_lend or not self._captures.wants(record.hints.capture, room):
            self._passages_left.append((record, novel))
            return False
        own_blocks = block_ids[-(-record.exact_prefix_tokens // self._block_tokens) :]
        tokens = passage_text(record.tokens, novel, len(own_blocks) * self._block_tokens)
        scratch = tuple(own_blocks[: -(-len(tokens) // self._block_tokens)])
        self._passages.add(PassageJob(record, novel, tokens, scratch, len(block_ids)))
        return True

    def prefill(self, *, idle: bool, pressed: bool) -> PrefillCommand | None:
        """This step's slice of an isolated prefill, if the engine is idle. A complete one is copied from this step on.

        ``pressed``: a request waits for blocks, so none may be lent.
        """
        if self._passages.note(idle=idle) or pressed:
            self.stop_lending()
        job = self._passages.first() if idle else None
        while job is not None and job.copy is None and not self._begin(job):
            self._passages.drop(job.request_id)
            self._end_prefill(job)
            job = self._passages.first()
        if job is None:
            return None
        command = self._passages.next_slice(job)
        if job.is_done and job.copy is not None:
            self._copying[job.copy.donor_id] = job
            self._captures.await_copy(job.copy)
        return command

    def stop_lending(self) -> None:
        """End all isolated prefills; the next commands return the blocks lent to them."""
        for job in self._passages.take_all():
            self._end_prefill(job)

    def _begin(self, job: PassageJob) -> bool:
        """Reserve late, so that no donor is evicted for a prefill that never runs and no passage is prefilled twice."""
        record = job.record
        if not self._is_new(record, job.tokens):
            return False
        job.copy = self._reserve(job, job.tokens)
        return job.copy is not None

    def _reserve(self, job: PassageJob | RepairJob, tokens: NDArray[np.uint32]) -> CaptureJob | None:
        """Room for a donor out of the held blocks of a finished request; ``None`` when the store is too small."""
        record = job.record
        copy = self._captures.reserve(record.request, self._new_id(), len(tokens), record.namespace)
        if copy is not None:
            copy.released_blocks, copy.held_blocks = job.block_ids, job.held_blocks
            self._capturing[copy.donor_id] = _Capture(record, tokens)
        return copy

    def _end_prefill(self, job: PassageJob) -> None:
        """End without a donor: the blocks are returned, and the passages get another chance when they repeat."""
        if job.copy is not None:
            self._captures.give_up(job.copy)
        self._unheld.append(job.request_id)
        self._passages_left.append((job.record, job.novel))

    def take_passages_left(self) -> list[tuple[VllmRequest, list[TokenRange]]]:
        """Passages that were left without a donor."""
        taken, self._passages_left = self._passages_left, []
        return taken

    def take_unheld(self) -> list[str]:
        """Finished requests whose blocks can be released."""
        taken, self._unheld = self._unheld, []
        return taken

    def _let_go(self) -> list[str]:
        """Give up every copy and isolated prefill; the finished requests whose blocks waited for one."""
        self.stop_lending()
        return self.take_unheld() + self._captures.forget_all()

    def slices(self, block_ids_of: Callable[[str], list[int]]) -> list[CaptureCommand]:
        """This step's copies, for prefills that earlier steps completed."""
        ready = [c for c in self._candidates.values() if c[0].request.num_computed_tokens >= c[1]]
        for record, tokens in ready[:DECISIONS_PER_STEP]:
            self._decide(record, tokens)
        return self._captures.slices(block_ids_of)

    def finished(self, record: VllmRequest, block_ids: list[int], total_blocks: int) -> bool:
        """The request is finished. True when its blocks must wait until their copy is done.

        If they may not wait, the cache itself keeps the donor for a while.
        """
        if (candidate := self._candidates.get(record.request_id)) is not None:
            if record.request.num_computed_tokens >= candidate[1]:
                self._decide(*candidate)
            else:
                del self._candidates[record.request_id]
        capture = self._capturing.get(record.donor_id or "")
        holds = self._captures.finish(record.request, block_ids, total_blocks, self._passages.held_blocks)
        if (
            capture is not None
            and record.donor_id is None
            and record.request.num_computed_tokens >= len(capture.tokens)
        ):
            self._keep_in_cache(record, capture.tokens)
        return holds

    def capture_repaired(self, job: RepairJob) -> bool:
        """A prompt whose KV is exact again becomes a donor. True: its blocks are released when they are copied."""
        record, tokens = job.record, job.record.tokens[: len(job.tokens)]
        if not self._planner.settings.enabled or not self._is_wanted(record, tokens):
            return False
        copy = self._reserve(job, tokens)
        if copy is not None:
            self._captures.await_copy(copy)
        return copy is not None

    def take_frees_copied(self) -> bool:
        return self._captures.take_frees_copied()

    def take_dropped(self) -> list[str]:
        return self._captures.take_dropped()

    def on_report(self, report: StepReport) -> None:
        if report.prefilled_tokens:
            self._metrics.record_prefill(report.prefilled_tokens, report.prefill_ms / 1e3)
        if report.captured_tokens:
            self._metrics.record_capture(report.captured_tokens, report.capture_ms / 1e3)
        for donor_id, error in report.prefill_faults.items():  # first: if the copy failed as well, this was the cause
            self._lost(donor_id, "study", error)
        for donor_id, error in report.capture_faults.items():
            self._lost(donor_id, "capture", error)
        for donor_id, ranks in report.stored.items():
            if donor_id not in self._capturing:
                continue
            self._ranks_stored[donor_id] = self._ranks_stored.get(donor_id, 0) + ranks
            if self._ranks_stored[donor_id] >= self._ranks:
                del self._ranks_stored[donor_id]
                self._complete(donor_id)
        self._update_gauges()

    def _update_gauges(self) -> None:
        size = (len(self._book), self._book.bytes_held)
        if size != self._last_gauges:
            self._last_gauges = size
            self._metrics.set_gauges(*size)

    def forget_all(self) -> list[str]:
        """Drop every donor; the finished requests whose blocks were waiting and must be released without a copy."""
        held = self._let_go()
        self._passages_left.clear()
        self._announcer.purged("reset")
        for donor_id in [*self._book.ids(), *self._cached.alone()]:
            self._drop(donor_id, "reset")
        self._candidates.clear()
        self._capturing.clear()
        self._copying.clear()
        self._ranks_stored.clear()
        self._update_gauges()
        return held

    def _decide(self, record: VllmRequest, tokens: int) -> None:
        del self._candidates[record.request_id]
        if not self._is_wanted(record, record.tokens[:tokens]):
            return
        donor_id = self._new_id()
        if self._captures.open(record.request, donor_id, tokens, record.namespace):
            record.donor_id = donor_id
            self._capturing[donor_id] = _Capture(record, record.tokens[:tokens])
            if not record.is_accepted and self._options.cached_donors:
                self._cached.add(donor_id, record.request, tokens)
        else:
            self._keep_in_cache(record, record.tokens[:tokens])

    def _keep_in_cache(self, record: VllmRequest, tokens: NDArray[np.uint32]) -> None:
        """No copy is made of this prompt: it is a donor until its blocks leave the engine's cache."""
        if record.is_accepted or not self._options.cached_donors:
            return  # hashes are private from its claim on
        donor_id = self._new_id()
        self._cached.add(donor_id, record.request, len(tokens))
        if self._register_cached(donor_id, tokens, record.namespace):
            record.donor_id = donor_id
            self._findable.registered(
                record.request_id, donor_id, self._cached.tokens_of(donor_id), record.namespace, None
            )

    def _register_cached(self, donor_id: str, tokens: NDArray[np.uint32], namespace: Namespace) -> bool:
        """Make a donor findable that only the cache holds: its full blocks. False if they are too few."""
        covered = self._cached.tokens_of(donor_id)
        if covered < self._options.min_capture_tokens:
            self._cached.remove(donor_id)
            return False
        try:
            evicted = self._findable.index(donor_id, tokens[:covered], namespace)
        except DonorError:
            self._cached.remove(donor_id)
            return False
        for other in evicted:
            self._drop(other, "index_full")
        for oldest in self._cached.keep_alone(Donor(donor_id, covered, namespace, 0)):
            self._forget_cached(oldest, "capacity")
        if not self._cached.holds_alone(donor_id):
            return False
        self._findable.announce(donor_id, tokens[:covered], namespace, "device")
        return True

    def left_cache(self, donor_ids: Iterable[str]) -> None:
        """Blocks of these donors were evicted, and nothing else holds them."""
        for donor_id in donor_ids:
            if self._cached.holds_alone(donor_id):
                self._drop(donor_id, "left_cache")

    def _forget_cached(self, donor: Donor, reason: str) -> None:
        self._cached.remove(donor.donor_id)
        self._gone(donor, reason)

    def _new_id(self) -> str:
        self._serial += 1
        return f"{self._session}-{self._serial}"

    def _is_wanted(self, record: VllmRequest, tokens: NDArray[np.uint32]) -> bool:
        """Whether the policy wants it and it is new."""
        refresh = record.decline is not None and record.decline.reason is DeclineReason.DONOR_REFRESH
        if not refresh and not self._captures.wants(record.hints.capture, len(tokens)):
            return False
        return self._is_new(record, tokens)

    def _is_new(self, record: VllmRequest, tokens: NDArray[np.uint32]) -> bool:
        """Whether it is not already stored in an equally good context, or the request asked to be captured."""
        if record.hints.capture:
            return True
        return len(tokens) - self._known_tokens(record, tokens) >= self._options.min_capture_tokens

    def _known_tokens(self, record: VllmRequest, tokens: NDArray[np.uint32]) -> float:
        answer = self._planner.plan(tokens, record.namespace)
        if isinstance(answer, ReusePlan):
            return answer.reused_tokens
        shares = [found.similarity for found in answer.discoveries if found.source == "tokens"]
        return max(shares, default=0.0) * len(tokens)

    def _complete(self, donor_id: str) -> None:
        capture = self._capturing.pop(donor_id)
        self._copying.pop(donor_id, None)
        donor = self._book.store(donor_id)
        if donor is None:  # evicted or reset while it was copied
            self._captures.drop_donor(donor_id)
            return
        known = self._findable.reusable(capture.tokens, capture.namespace)
        superseded = self._findable.continued_by(known, self._book.tokens_of)
        try:
            evicted = self._findable.index(donor_id, capture.tokens, capture.namespace)
        except DonorError as error:
            self._drop(donor_id, f"not indexed: {error}")
            return
        if superseded is not None:
            self._drop(superseded, "superseded")
        for other in evicted:
            self._drop(other, "index_full")
        if donor_id in self._book:
            self._describe(donor_id, capture)
            blocks = -(-donor.tokens // self._block_tokens)
            self._findable.registered(capture.request_id, donor_id, donor.tokens, capture.namespace, blocks)
            self._findable.announce(donor_id, capture.tokens, capture.namespace, "host")

    def _describe(self, donor_id: str, capture: _Capture) -> None:
        if self._decoder is not None:
            describe = partial(self._planner.describe, donor_id, capture.namespace)
            self._decoder.decode(capture.request_id, capture.tokens, describe)

    def _lost(self, donor_id: str, stage: str, error: str) -> None:
        capture = self._capturing.get(donor_id)
        self._captures.cancel_donor(donor_id)
        self._give_up([donor_id])
        if capture is not None:
            self._emit(FaultContained(capture.request_id, stage, error))

    def _given_up(self, donor_id: str) -> None:
        self._ranks_stored.pop(donor_id, None)
        self._cached.remove(donor_id)
        if (prefill := self._copying.pop(donor_id, None)) is not None:
            self._passages_left.append((prefill.record, prefill.novel))
        capture = self._capturing.pop(donor_id, None)
        if capture is not None and capture.record.donor_id == donor_id:
            capture.record.donor_id = None  # clients must not be given a donor id that will never exist

    def _evicted(self, donor: Donor) -> None:
        """The book has removed it; the workers drop it with this step's commands. The cache may still hold it."""
        tokens = self._planner.tokens_of(donor.donor_id) if self._cached.may_hold(donor.donor_id) else None
        if tokens is None or not self._register_cached(donor.donor_id, tokens, donor.namespace):
            self._cached.remove(donor.donor_id)
            self._gone(donor, "capacity")

    def _drop(self, donor_id: str, reason: str) -> None:
        alone = self._cached.remove(donor_id)
        if (donor := self._book.remove(donor_id)) is not None:
            self._captures.drop_donor(donor_id)
            self._gone(donor, reason)
        elif alone is not None:
            self._gone(alone, reason)
        else:  # not in the book, but maybe in the index
            self._planner.forget(donor_id)

    def _gone(self, donor: Donor, reason: str) -> None:
        self._findable.removed(donor.donor_id, donor.namespace, reason)
