"""Tracks each request: what may be loaded beyond the exact match, or why nothing is, and what was served of it.

Knows requests, plans and events, but no tensor and no engine. Called by the radix backend on the scheduler's thread.
"""

from __future__ import annotations

import time
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
    LoadAdvertised,
    Materialized,
    Namespace,
    ReusePlan,
)
from semblend.contract.donor_event import Tier
from semblend.integration.claims import cut_at, exact_until, with_recompute_fraction, within_gaps, worth_its_time
from semblend.integration.core.provenance import provenance
from semblend.integration.core.request_record import RequestRecord
from semblend.integration.core.request_table import RequestTable
from semblend.integration.sglang.alternates import shared_prefix, verified
from semblend.integration.sglang.provider import StagedRequest
from semblend.plan.fidelity import OPEN, FidelityGate
from semblend.plan.reuse_cost import ReuseCost

if TYPE_CHECKING:
    from semblend.integration.hints import Hints
    from semblend.integration.sglang.options import SglangOptions
    from semblend.integration.sglang.provider import SemanticPrefixProvider

_ATTEMPTS: Final = 3

# A donor's id, its tokens, and how many of the first are needed.
Resident = Callable[[str, NDArray[np.uint32], int], "Reach"]


class Reach(NamedTuple):
    """How many of a donor's first tokens can be loaded, and the farthest tier that holds a part of them."""

    tokens: int
    tier: Tier = "device"


@dataclass(slots=True)
class SglangRequest(RequestRecord):
    """One request between its first look-up and its end."""

    owner: object = None  # the engine's own request: clients choose the ids, and may choose one twice
    asked_at: tuple[int, int, int] | None = None  # boundary, limit and version of the donors the answer holds for
    donors: dict[str, NDArray[np.uint32]] = field(default_factory=dict)
    skip_insert: bool = False
    is_donor: bool = False


class RequestTracker:
    """Queries the provider, verifies every answer, and keeps a record per request."""

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
        can_recompute: bool = False,
        cost: ReuseCost | None = None,
    ) -> None:
        """``model`` is the name in the engine's answers; ``can_recompute``: loaded tokens can be recomputed."""
        self._cost = cost or ReuseCost()
        self.provider = provider
        self._options = options
        self._emit = emit
        self._page = page_tokens
        self._max_step_tokens = max_step_tokens
        self._fidelity = fidelity
        self._model = model
        self._can_recompute = can_recompute
        self._records: RequestTable[str, SglangRequest] = RequestTable()

    def __len__(self) -> int:
        return len(self._records)

    def open(
        self, rid: str, tokens: NDArray[np.uint32], namespace: Namespace, hints: Hints, owner: object = None
    ) -> SglangRequest | None:
        """The record of a request; a new one when its tokens have grown because it was sent back to the queue. None
        while another request with the same id runs on loaded KV."""
        held = self._records.get(rid)
        if held is not None and held.owner is owner and len(held.tokens) == len(tokens):
            return held
        if held is not None and held.is_accepted and held.owner is not owner:
            return None
        record = SglangRequest(rid, tokens, namespace, hints, owner=owner)
        self._records.add(rid, record)
        return record

    def expect(self, rid: str, tokens: NDArray[np.uint32], namespace: Namespace) -> None:
        """A request that will be looked up later: the provider may prepare for it."""
        self.provider.on_request_staged(StagedRequest(rid, tokens, namespace, 0))

    def known(self, rid: str) -> SglangRequest | None:
        return self._records.get(rid)

    def of(self, owner: Any) -> SglangRequest | None:
        """The record of this request object, not of another with the same id."""
        record = self._records.get(owner.rid)
        return record if record is not None and record.owner is owner else None

    def claim(self, record: SglangRequest, boundary: int, limit: int, obstacle: str, resident: Resident) -> int:
        """How many tokens from ``boundary`` on are claimed; 0 for none. Cheap when repeated."""
        if record.is_accepted:
            return 0
        asked_at = (boundary, limit, self.provider.version)
        if record.asked_at != asked_at:
            record.asked_at = asked_at
            self._ask(record, boundary, limit, obstacle, resident)
            record.asked_at = (boundary, limit, self.provider.version)
        return 0 if record.plan is None else record.plan.claim_end - boundary

    def _ask(self, record: SglangRequest, boundary: int, limit: int, obstacle: str, resident: Resident) -> None:
        started = time.perf_counter()
        answer: ReusePlan | Decline
        if obstacle:
            answer = Decline(DeclineReason.UNSUPPORTED_MODE, obstacle)
        elif not record.hints.reuse:
            self._stage(record, boundary)
            answer = Decline(DeclineReason.DISABLED, "the request disabled reuse")
        else:
            answer = self._answer(record, boundary, limit, resident)
        record.answered(answer, boundary)
        if record.plan is not None:
            tokens, donors = record.tokens, record.donors
            record.exact_tokens = exact_until(record.plan, lambda donor_id: shared_prefix(donors[donor_id], tokens))
        self._emit(record.lookup_event(time.perf_counter() - started))

    def _stage(self, record: SglangRequest, boundary: int) -> None:
        self.provider.on_request_staged(StagedRequest(record.request_id, record.tokens, record.namespace, boundary))

    def _answer(self, record: SglangRequest, boundary: int, limit: int, resident: Resident) -> ReusePlan | Decline:
        for _ in range(_ATTEMPTS):
            self._stage(record, boundary)
            result = self.provider.on_prefix_miss(record.request_id, record.tokens)
            if result is None:
                return self.provider.declined(record.request_id) or Decline(DeclineReason.NO_CANDIDATE)
            answer, donors = verified(result, record.tokens, boundary, self._options.gates, self._page)
            if isinstance(answer, Decline):
                return answer
            if self._lost(answer, donors, resident):
                continue
            record.donors, record.skip_insert = donors, result.skip_insert
            return self._served(record, answer, limit)
        return Decline(DeclineReason.STALE, "the donors' KV was evicted during planning")

    def _lost(self, plan: ReusePlan, donors: dict[str, NDArray[np.uint32]], resident: Resident) -> bool:
        """Whether the tree no longer holds what the plan needs; what is left is reported to the provider."""
        lost = False
        for donor_id, needed in needed_tokens(plan).items():
            reach = resident(donor_id, donors[donor_id], needed)
            if reach.tokens < needed:
                self.provider.on_donor_lost(donor_id, reach.tokens)
                lost = True
            else:
                self.provider.on_donor_seen(donor_id, reach.tier)
        return lost

    def _served(self, record: SglangRequest, plan: ReusePlan, limit: int) -> ReusePlan | Decline:
        """The part of a plan the engine can take: whole pages, a bounded step, few enough gaps, and still worth it."""
        cut = cut_at(within_gaps(plan, self._options.max_holes), limit, self._page)
        if cut is None:
            return Decline(DeclineReason.CAPACITY, "no whole page can be claimed", plan.discoveries)
        bounded = with_recompute_fraction(
            cut,
            self._fidelity,
            self._model,
            record.hints.recompute_fraction,
            self._options,
            self._options.gates,
            can_recompute=self._can_recompute,
            max_computed_tokens=self._max_step_tokens,
        )
        if isinstance(bounded, Decline):
            return bounded
        served = cut_at(bounded, bounded.claim_end, self._page)
        ratio = self._options.gates.min_reuse_ratio
        if served is None or served.reused_tokens < ratio * (plan.prompt_tokens - plan.exact_prefix_tokens):
            return Decline(DeclineReason.BELOW_MIN_REUSE_RATIO, "the part the engine can take is too small")
        return worth_its_time(served, self._cost, self._options, self._options.gates)

    # -- what was served ---------------------------------------------------------------------------------------------

    def loaded(self, record: SglangRequest) -> None:
        """The slots of the claim are filled except for its gaps, and the engine has accepted the claim."""
        plan = record.plan
        assert plan is not None
        record.is_accepted, record.runs, record.computed_tokens = True, plan.runs, plan.computed_tokens
        tokens = plan.claim_end - record.exact_prefix_tokens
        self._emit(LoadAdvertised(record.request_id, plan.donor_ids, tokens, record.exact_prefix_tokens))

    def withdrawn(self, record: SglangRequest, reason: DeclineReason, why: str) -> None:
        """The claim is withdrawn at admission: the engine computes everything."""
        record.plan, record.is_accepted, record.runs = None, False, ()
        record.decline = record.backend_decline = Decline(reason, why)

    def overtaken(self, rid: str) -> None:
        """The engine has found a longer exact match in another tier: an earlier claim is void."""
        record = self._records.get(rid)
        if record is not None and not record.is_accepted:
            record.plan = record.asked_at = None

    def confirmed(
        self,
        record: SglangRequest,
        load_ms: float,
        compute_ms: float,
        *,
        recomputed_tokens: int = 0,
        selected_by: str | None = None,
    ) -> None:
        """A forward pass has run over the claim; ``recomputed_tokens`` of the loaded tokens were computed in it."""
        plan = record.plan
        if plan is None or record.is_confirmed:
            return
        record.is_confirmed = True
        expected = self._cost.served(plan, self._options.asked_tokens(plan), load_ms, compute_ms)
        record.recomputed_tokens, record.selected_by = recomputed_tokens, selected_by
        record.computed_tokens = plan.computed_tokens + recomputed_tokens
        self._emit(
            Materialized(
                record.request_id,
                plan.donor_ids,
                record.reused_tokens,
                record.computed_tokens,
                len(plan.runs),
                load_ms,
                compute_ms,
                *expected,
            )
        )
        self.provider.on_request_blended(record.request_id, plan, record.exact_tokens)

    def computed_whole(self, record: SglangRequest, fault: str = "") -> None:
        """A forward pass has computed the whole claim, so nothing was reused: the load was wrong (``fault``), or the
        deployment asked for it (``recompute_all``)."""
        if record.plan is None or record.is_confirmed:
            return
        record.is_confirmed, record.runs, record.exact_tokens = True, (), len(record.tokens)
        if fault:
            record.backend_decline = Decline(DeclineReason.INTERNAL_ERROR, fault)

    def publishable(self, rid: str, up_to: int) -> int:
        """How many of the first ``up_to`` tokens may be inserted into the tree."""
        record = self._records.get(rid)
        if record is None or not record.is_accepted:
            return up_to
        if not record.is_confirmed:  # its gaps have not been computed yet
            return min(up_to, record.exact_prefix_tokens)
        if record.exact_tokens >= len(record.tokens):
            return up_to
        return record.exact_prefix_tokens if record.skip_insert else min(up_to, record.exact_tokens)

    def cached(self, rid: str, prompt_tokens: int, published: int) -> None:
        """The first ``published`` tokens are in the tree. A whole prompt, or its exact head, becomes a donor once."""
        record = self._records.get(rid)
        if record is None or record.is_donor or record.hints.capture is False:
            return
        tokens = min(prompt_tokens, published)
        is_whole = published >= prompt_tokens or (record.is_accepted and published >= record.exact_tokens)
        tokens -= tokens % self._page  # what the tree holds
        if is_whole and tokens - record.exact_prefix_tokens >= self._options.min_donor_tokens:
            record.is_donor = True
            self.provider.on_request_cached(rid, record.tokens[:tokens])

    def repaired(self, rid: str, tokens: NDArray[np.uint32], namespace: Namespace) -> None:
        """The tree holds the exact KV of a prompt that was blended: it may become a donor.

        ``rid`` may belong to another request by now, so the provider gets another name.
        """
        name = f"{rid}#repaired"
        self.provider.on_request_staged(StagedRequest(name, tokens, namespace, 0))
        self.provider.on_request_cached(name, tokens)
        self.provider.on_request_released(name)

    def released(self, rid: str) -> None:
        """The request no longer holds KV."""
        record = self._records.pop(rid)
        if record is not None and record.decline is not None and not record.is_accepted:
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


def meta_info(record: SglangRequest) -> dict[str, Any]:
    """What a client receives with its first token, under ``meta_info.semblend``."""
    return {
        **provenance(record, is_confirmed=record.is_confirmed),
        "donor_ids": list(dict.fromkeys(run.donor_id for run in record.runs)) if record.is_confirmed else [],
        "exact_tokens": record.exact_tokens if record.is_blended else len(record.tokens),
    }
