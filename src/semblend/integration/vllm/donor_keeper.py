"""From a prefill to a donor: selected once it is computed, copied by the workers, findable when every rank has it."""

from __future__ import annotations

import dataclasses
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import DeclineReason, Event, FaultContained, ReusePlan
from semblend.integration.announce import SILENT, Announcer
from semblend.integration.core.metrics import MetricsRecorder
from semblend.integration.vllm.cached_donors import CachedDonors
from semblend.integration.vllm.capture import CaptureJob, CaptureQueue
from semblend.integration.vllm.commands import CaptureCommand, StepReport
from semblend.integration.vllm.held_donors import HeldDonors
from semblend.integration.vllm.isolated_prefills import IsolatedPrefills
from semblend.integration.vllm.options import ConnectorOptions
from semblend.integration.vllm.passage_prefill import PassageJob
from semblend.integration.vllm.repair import RepairJob
from semblend.integration.vllm.request_record import VllmRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from semblend.integration.texts import TextDecoder
    from semblend.pipeline.planner import Planner


DECISIONS_PER_STEP: Final = 4  # each costs a look-up on the scheduler's thread


@dataclasses.dataclass(frozen=True, slots=True)
class _Capture:
    """A donor being copied, which is not findable yet."""

    record: VllmRequest
    tokens: NDArray[np.uint32]


class DonorKeeper:
    """Decides which prompts become donors and follows their copies. ``held`` has the donors, ``prefills`` their makers
    besides requests: isolated prefills.
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
        self._ranks = ranks
        self.held = HeldDonors(options, planner, cached, block_tokens, emit, announcer)
        self._captures = CaptureQueue(
            options, self.held.book, block_tokens, bytes_per_token, self.held.evicted, self._given_up
        )
        self._unheld: list[str] = []
        self.prefills = IsolatedPrefills(options, self._captures, block_tokens, self._reserve_prefill, self._unhold)
        self._candidates: dict[str, tuple[VllmRequest, int]] = {}
        self._capturing: dict[str, _Capture] = {}
        self._ranks_stored: dict[str, int] = {}
        self._last_gauges = (-1, -1)
        self._session = secrets.token_hex(4)
        self._serial = 0

    def __len__(self) -> int:
        return len(self.held.book)

    def __contains__(self, donor_id: str) -> bool:
        return donor_id in self.held.book

    @property
    def has_waiting_blocks(self) -> bool:
        return bool(self._captures.waiting_blocks or self.prefills.is_lending or self._unheld)

    @property
    def held_blocks(self) -> int:
        """Blocks of finished requests that wait for a copy or are lent to isolated prefills."""
        return self._captures.waiting_blocks + self.prefills.held_blocks

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
        self.prefills.abandon(request_id)

    def lose(self, report: StepReport) -> None:
        """The report could not be processed: the donors it names are given up, on both sides."""
        self._give_up([*report.stored, *report.capture_faults, *report.prefill_faults])

    def _give_up(self, donor_ids: list[str]) -> None:
        for donor_id in donor_ids:
            self._given_up(donor_id)
            self.held.give_up(donor_id)
            if (request_id := self._captures.stop_waiting(donor_id)) is not None:
                self._unhold(request_id)
            self.prefills.give_up(donor_id)

    def _reserve_prefill(self, job: PassageJob) -> CaptureJob | None:
        return self._reserve(job, job.tokens) if self._is_new(job.record, job.tokens) else None

    def _reserve(self, job: PassageJob | RepairJob, tokens: NDArray[np.uint32]) -> CaptureJob | None:
        """Room for a donor out of the held blocks of a finished request; ``None`` when the store is too small."""
        record = job.record
        copy = self._captures.reserve(record.request, self._new_id(), len(tokens), record.namespace)
        if copy is not None:
            copy.released_blocks, copy.held_blocks = job.block_ids, job.held_blocks
            self._capturing[copy.donor_id] = _Capture(record, tokens)
        return copy

    def _unhold(self, request_id: str) -> None:
        self._unheld.append(request_id)

    def take_unheld(self) -> list[str]:
        """Finished requests whose blocks can be released."""
        taken, self._unheld = self._unheld, []
        return taken

    def _let_go(self) -> list[str]:
        """Give up every copy and isolated prefill; the finished requests whose blocks waited for one."""
        self.prefills.stop()
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
        holds = self._captures.finish(record.request, block_ids, total_blocks, self.prefills.held_blocks)
        if (
            capture is not None
            and record.donor_id is None
            and record.request.num_computed_tokens >= len(capture.tokens)
        ):
            self.held.keep_in_cache(self._new_id(), record, capture.tokens)
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

    def reserve_fetched(self, record: VllmRequest, tokens: int) -> str | None:
        """An id and room for a donor of another replica that the request would use; None if the store is too small."""
        donor_id = self._new_id()
        is_reserved = self._captures.reserve(record.request, donor_id, tokens, record.namespace) is not None
        return donor_id if is_reserved else None

    def being_captured(self, donor_id: str) -> tuple[VllmRequest, NDArray[np.uint32]] | None:
        """The request and the tokens of a donor that is being copied."""
        capture = self._capturing.get(donor_id)
        return None if capture is None else (capture.record, capture.tokens)

    def take_frees_copied(self) -> bool:
        return self._captures.take_frees_copied()

    def take_dropped(self) -> list[str]:
        """Donors the workers must drop."""
        return self.held.take_dropped() + self._captures.take_dropped()

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
        size = (len(self.held.book), self.held.book.bytes_held)
        if size != self._last_gauges:
            self._last_gauges = size
            self._metrics.set_gauges(*size)

    def forget_all(self) -> list[str]:
        """Drop every donor; the finished requests whose blocks were waiting and must be released without a copy."""
        held = self._let_go()
        self.held.forget_all()
        self.prefills.forget_all()
        self._candidates.clear()
        self._capturing.clear()
        self._ranks_stored.clear()
        self._update_gauges()
        return held

    def _decide(self, record: VllmRequest, tokens: int) -> None:
        del self._candidates[record.request_id]
        prompt = record.tokens[:tokens]
        if not self._is_wanted(record, prompt):
            return
        donor_id = self._new_id()
        if self._captures.open(record.request, donor_id, tokens, record.namespace):
            record.donor_id = donor_id
            self._capturing[donor_id] = _Capture(record, prompt)
            self.held.copying(donor_id, record, tokens)
        else:
            self.held.keep_in_cache(donor_id, record, prompt)

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
        self.prefills.stored(donor_id)
        if not self.held.store(donor_id, capture.record, capture.tokens):
            return
        if self._decoder is not None:
            describe = partial(self._planner.describe, donor_id, capture.record.namespace)
            self._decoder.decode(capture.record.request_id, capture.tokens, describe)

    def _lost(self, donor_id: str, stage: str, error: str) -> None:
        capture = self._capturing.get(donor_id)
        self._captures.cancel_donor(donor_id)
        self._give_up([donor_id])
        if capture is not None:
            self._emit(FaultContained(capture.record.request_id, stage, error))

    def _given_up(self, donor_id: str) -> None:
        self._ranks_stored.pop(donor_id, None)
        self.held.not_copied(donor_id)
        self.prefills.not_copied(donor_id)
        capture = self._capturing.pop(donor_id, None)
        if capture is not None and capture.record.donor_id == donor_id:
            capture.record.donor_id = None  # clients must not be given a donor id that will never exist
