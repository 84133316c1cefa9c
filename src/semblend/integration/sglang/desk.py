"""One question per request: what may be loaded beyond the exact match, or why nothing is; and what became of it.

Knows requests, plans and events, no tensor and no engine. The radix backend asks on the scheduler's thread.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semblend.contract import (
    Decline,
    Declined,
    DeclineReason,
    Event,
    Evidence,
    LoadAdvertised,
    LookupFinished,
    Materialized,
    Namespace,
    Outcome,
    ReusePlan,
)
from semblend.contract.donor_event import Tier
from semblend.integration.claims import cut_at, exact_until, fidelity_of, with_share, within_holes
from semblend.integration.sglang.alternates import shared_prefix, verified
from semblend.integration.sglang.provider import StagedRequest
from semblend.plan.fidelity import OPEN, FidelityGate

if TYPE_CHECKING:
    from semblend.integration.hints import Hints
    from semblend.integration.sglang.options import SglangOptions
    from semblend.integration.sglang.provider import SemanticPrefixProvider

MAX_RECORDS: Final = 8192
_ATTEMPTS: Final = 3

Resident = Callable[[NDArray[np.uint32], int], "Reach"]  # a donor, and how many of its first tokens are needed


class Reach(NamedTuple):
    """How many of a donor's first tokens can be loaded, and the farthest place a part of them stands in."""

    tokens: int
    tier: Tier = "device"


@dataclass(slots=True)
class Record:
    """One request between its first look-up and its end. ``plan`` and ``decline`` answer the last look-up."""

    rid: str
    tokens: NDArray[np.uint32]
    namespace: Namespace
    hints: Hints
    owner: object = None  # the engine's own request: ids are the clients' and may come twice
    asked_at: tuple[int, int, int] | None = None  # boundary, limit and the state of the donors the answer holds for
    plan: ReusePlan | None = None
    donors: dict[str, NDArray[np.uint32]] = field(default_factory=dict)
    decline: Decline | None = None
    exact_tokens: int = 0  # up to here its KV is that of cold prefill
    exact_prefix_tokens: int = 0
    chosen_tokens: int = 0  # of the runs, computed after all
    selected_by: str | None = None
    skip_insert: bool = False
    is_loaded: bool = False
    is_confirmed: bool = False
    is_donor: bool = False
    fault: str = ""


class Desk:
    """Asks the provider, trusts nothing it says, and keeps a record per request."""

    def __init__(
        self,
        provider: SemanticPrefixProvider,
        options: SglangOptions,
        emit: Callable[[Event], None],
        *,
        page_tokens: int,
        max_step_tokens: int,
        fidelity: FidelityGate = OPEN,
        model: str = "",
        can_choose: bool = False,
    ) -> None:
        """``model`` is the name the engine's answers carry; ``can_choose``: loaded tokens can be computed after all."""
        self.provider = provider
        self._options = options
        self._emit = emit
        self._page = page_tokens
        self._max_step_tokens = max_step_tokens
        self._fidelity = fidelity
        self._model = model
        self._can_choose = can_choose
        self._records: OrderedDict[str, Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def open(
        self, rid: str, tokens: NDArray[np.uint32], namespace: Namespace, hints: Hints, owner: object = None
    ) -> Record | None:
        """The record of a request; one whose tokens have grown (it was sent back to the queue) begins anew. None while
        another request runs on loaded KV under the same id."""
        held = self._records.get(rid)
        if held is not None and held.owner is owner and len(held.tokens) == len(tokens):
            return held
        if held is not None and held.is_loaded and held.owner is not owner:
            return None
        self._records[rid] = record = Record(rid, tokens, namespace, hints, owner)
        self._make_room()
        return record

    def expect(self, rid: str, tokens: NDArray[np.uint32], namespace: Namespace) -> None:
        """A request that will be looked up when its turn comes: the provider may begin to think."""
        self.provider.on_request_staged(StagedRequest(rid, tokens, namespace, 0))

    def _make_room(self) -> None:
        """A request that runs on loaded KV is never forgotten: the record keeps its KV out of the tree."""
        while len(self._records) > MAX_RECORDS:
            oldest = next((rid for rid, record in self._records.items() if not record.is_loaded), None)
            if oldest is None:
                return
            del self._records[oldest]

    def known(self, rid: str) -> Record | None:
        return self._records.get(rid)

    def of(self, owner: Any) -> Record | None:
        """The record of the engine's own request, not of another with the same id."""
        record = self._records.get(owner.rid)
        return record if record is not None and record.owner is owner else None

    def claim(self, record: Record, boundary: int, limit: int, obstacle: str, resident: Resident) -> int:
        """How many tokens from ``boundary`` on are promised; 0 for none. Cheap when asked again."""
        if record.is_loaded:
            return 0
        asked_at = (boundary, limit, self.provider.version)
        if record.asked_at != asked_at:
            record.asked_at = asked_at
            self._ask(record, boundary, limit, obstacle, resident)
            record.asked_at = (boundary, limit, self.provider.version)
        return 0 if record.plan is None else record.plan.claim_end - boundary

    def _ask(self, record: Record, boundary: int, limit: int, obstacle: str, resident: Resident) -> None:
        started = time.perf_counter()
        answer: ReusePlan | Decline
        if obstacle:
            answer = Decline(DeclineReason.UNSUPPORTED_MODE, obstacle)
        elif not record.hints.reuse:
            self._stage(record, boundary)
            answer = Decline(DeclineReason.DISABLED, "the request asked for no reuse")
        else:
            answer = self._answer(record, boundary, limit, resident)
        plan = record.plan = answer if isinstance(answer, ReusePlan) else None
        record.decline = answer if isinstance(answer, Decline) else None
        record.exact_prefix_tokens = boundary
        if plan is not None:
            tokens, donors = record.tokens, record.donors
            record.exact_tokens = exact_until(plan, lambda donor_id: shared_prefix(donors[donor_id], tokens))
        self._emit(
            LookupFinished(
                record.rid,
                record.namespace.digest(),
                len(record.tokens),
                boundary,
                plan.reused_tokens if plan is not None else 0,
                len(plan.runs) if plan is not None else 0,
                plan.donor_ids if plan is not None else (),
                max((found.similarity for found in answer.discoveries), default=None),
                None if record.decline is None else record.decline.reason.value,
                (time.perf_counter() - started) * 1e6,
            )
        )

    def _stage(self, record: Record, boundary: int) -> None:
        self.provider.on_request_staged(StagedRequest(record.rid, record.tokens, record.namespace, boundary))

    def _answer(self, record: Record, boundary: int, limit: int, resident: Resident) -> ReusePlan | Decline:
        for _ in range(_ATTEMPTS):
            self._stage(record, boundary)
            result = self.provider.on_prefix_miss(record.rid, record.tokens)
            if result is None:
                return self.provider.declined(record.rid) or Decline(DeclineReason.NO_CANDIDATE)
            answer, donors = verified(result, record.tokens, boundary, self._options.gates, self._page)
            if isinstance(answer, Decline):
                return answer
            if self._lost(answer, donors, resident):
                continue
            record.donors, record.skip_insert = donors, result.skip_insert
            return self._served(record, answer, limit)
        return Decline(DeclineReason.STALE, "the donors' KV left the tree while they were being planned")

    def _lost(self, plan: ReusePlan, donors: dict[str, NDArray[np.uint32]], resident: Resident) -> bool:
        """Whether the tree no longer holds what the plan needs; the provider is told what is left."""
        lost = False
        for donor_id, needed in needed_tokens(plan).items():
            reach = resident(donors[donor_id], needed)
            if reach.tokens < needed:
                self.provider.on_donor_lost(donor_id, reach.tokens)
                lost = True
            else:
                self.provider.on_donor_seen(donor_id, reach.tier)
        return lost

    def _served(self, record: Record, plan: ReusePlan, limit: int) -> ReusePlan | Decline:
        """What the engine can take of a plan: whole pages, a bounded step, few enough holes, and still worth it."""
        cut = cut_at(within_holes(plan, self._options.max_holes), limit, self._page)
        if cut is None:
            return Decline(DeclineReason.CAPACITY, "no whole page can be claimed", plan.discoveries)
        bounded = with_share(
            cut,
            self._fidelity,
            self._model,
            record.hints.share,
            self._options,
            can_choose=self._can_choose,
            max_computed_tokens=self._max_step_tokens,
        )
        if isinstance(bounded, Decline):
            return bounded
        served = cut_at(bounded, bounded.claim_end, self._page)
        ratio = self._options.gates.min_reuse_ratio
        if served is None or served.reused_tokens < ratio * (plan.prompt_tokens - plan.exact_prefix_tokens):
            return Decline(DeclineReason.BELOW_MIN_REUSE_RATIO, "what the engine can take is too little")
        return served

    # -- what became of it -------------------------------------------------------------------------------------------

    def loaded(self, record: Record) -> None:
        """The claim's slots are filled but for its holes; the engine has taken the promise."""
        assert record.plan is not None
        record.is_loaded = True
        tokens = record.plan.claim_end - record.exact_prefix_tokens
        self._emit(LoadAdvertised(record.rid, record.plan.donor_ids, tokens, record.exact_prefix_tokens))

    def broken(self, record: Record, reason: DeclineReason, why: str) -> None:
        """The promise is taken back at admission: the engine computes everything."""
        record.plan, record.is_loaded = None, False
        record.decline = Decline(reason, why)

    def overtaken(self, rid: str) -> None:
        """The engine has found a longer exact match in another tier: an earlier promise no longer stands."""
        record = self._records.get(rid)
        if record is not None and not record.is_loaded:
            record.plan = record.asked_at = None

    def confirmed(
        self,
        record: Record,
        load_ms: float,
        compute_ms: float,
        *,
        recomputed: bool,
        chosen_tokens: int = 0,
        selected_by: str | None = None,
    ) -> None:
        """A forward pass has run over the claim. ``recomputed``: nothing of it was loaded in the end; otherwise
        ``chosen_tokens`` of what was loaded have been computed after all."""
        plan = record.plan
        if plan is None or record.is_confirmed:
            return
        record.is_confirmed = True
        if recomputed:
            record.exact_tokens = len(record.tokens)
            return
        record.chosen_tokens, record.selected_by = chosen_tokens, selected_by
        reused, computed = plan.reused_tokens - chosen_tokens, plan.computed_tokens + chosen_tokens
        self._emit(Materialized(record.rid, plan.donor_ids, reused, computed, len(plan.runs), load_ms, compute_ms))
        self.provider.on_request_blended(record.rid, plan, record.exact_tokens)

    def publishable(self, rid: str, up_to: int) -> int:
        """How many of the first ``up_to`` tokens may enter the tree."""
        record = self._records.get(rid)
        if record is None or not record.is_loaded:
            return up_to
        if not record.is_confirmed:  # its holes have not been computed yet
            return min(up_to, record.exact_prefix_tokens)
        if record.exact_tokens >= len(record.tokens):
            return up_to
        return record.exact_prefix_tokens if record.skip_insert else min(up_to, record.exact_tokens)

    def cached(self, rid: str, prompt_tokens: int, published: int) -> None:
        """The first ``published`` tokens stand in the tree. A whole prompt, or its exact head, becomes a donor once."""
        record = self._records.get(rid)
        if record is None or record.is_donor or record.hints.capture is False:
            return
        tokens = min(prompt_tokens, published)
        is_whole = published >= prompt_tokens or (record.is_loaded and published >= record.exact_tokens)
        tokens -= tokens % self._page  # what the tree holds
        if is_whole and tokens - record.exact_prefix_tokens >= self._options.min_donor_tokens:
            record.is_donor = True
            self.provider.on_request_cached(rid, record.tokens[:tokens])

    def released(self, rid: str) -> None:
        """The request holds no KV any more."""
        record = self._records.pop(rid, None)
        if record is not None and record.decline is not None and not record.is_loaded:
            self._emit(Declined(rid, record.decline.reason.value, record.decline.detail))
        self.provider.on_request_released(rid)

    def reset(self) -> None:
        self._records.clear()
        self.provider.on_reset()


def needed_tokens(plan: ReusePlan) -> dict[str, int]:
    """How many of each donor's first tokens must be in the tree."""
    needed: dict[str, int] = {}
    for run in plan.runs:
        needed[run.donor_id] = max(needed.get(run.donor_id, 0), run.donor_start + run.length)
    return needed


def provenance(record: Record, select: str) -> dict[str, Any]:
    """What a client is told with its first token, under ``meta_info.semblend``."""
    plan = record.plan if record.is_loaded else None
    reused = plan is not None and record.exact_tokens < len(record.tokens)
    outcome = Outcome.BACKEND_MATERIALIZED_REUSE if reused else Outcome.COLD_FALLBACK
    return {
        "outcome": outcome.value,
        "evidence": Evidence.BACKEND_CONFIRMED.value,
        "prompt_tokens": len(record.tokens),
        "exact_prefix_tokens": record.exact_prefix_tokens,
        "reused_tokens": plan.reused_tokens - record.chosen_tokens if plan is not None and reused else 0,
        "computed_tokens": plan.computed_tokens + record.chosen_tokens if plan is not None and reused else 0,
        **fidelity_of(plan, plan.runs if plan is not None and reused else (), record.selected_by, select),
        "donor_ids": list(plan.donor_ids) if plan is not None and reused else [],
        "exact_tokens": record.exact_tokens,
    }
