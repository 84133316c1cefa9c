"""A claim is loaded when its request is admitted: new slots, filled with the donors' KV except for the gaps."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.mem_cache.common import evict_from_tree_cache
from sglang.srt.mem_cache.radix_cache import RadixKey

from semblend.contract import DeclineReason, TokenRange
from semblend.integration.claims import verification_positions
from semblend.integration.sglang.gaps import FillCommand
from semblend.integration.sglang.request_tracker import needed_tokens

if TYPE_CHECKING:
    from semblend.contract import ReusePlan
    from semblend.integration.sglang.donor_kv import DonorKV
    from semblend.integration.sglang.donor_places import DonorPlaces
    from semblend.integration.sglang.parts import Parts
    from semblend.integration.sglang.request_tracker import SglangRequest


class Admission:
    """Knows the slots of requests that were admitted on loaded KV."""

    def __init__(self, tree: Any, parts: Parts, places: DonorPlaces) -> None:
        self._tree = tree
        self._parts = parts
        self._places = places
        self.slots: dict[str, torch.Tensor] = {}

    def load(self, req: Any, record: SglangRequest) -> torch.Tensor | None:
        """All or nothing."""
        plan, parts = record.plan, self._parts
        assert plan is not None
        started = time.perf_counter()
        if self._tree.ongoing_load_back:
            parts.tracker.withdrawn(record, DeclineReason.CAPACITY, "the engine is loading tree slots from the host")
            return None
        locks: list[Any] = []
        try:
            slots = self._loaded(req, record, plan, locks)
        finally:
            for lock in locks:
                self._tree.unlock(lock)
        if slots is None:
            return None
        parts.tracker.loaded(record)
        parts.filler.post(self._command(record, plan, (time.perf_counter() - started) * 1e3))
        return slots

    def take_back(self, record: SglangRequest) -> None:
        """Clean up after a load that failed."""
        self._parts.filler.withdraw(record.request_id)
        if (slots := self.slots.pop(record.request_id, None)) is not None:
            self._tree.token_to_kv_pool_allocator.free(slots)
        if record.plan is not None:
            self._parts.tracker.withdrawn(record, DeclineReason.INTERNAL_ERROR, "the load failed")

    def _loaded(self, req: Any, record: SglangRequest, plan: ReusePlan, locks: list[Any]) -> torch.Tensor | None:
        tracker = self._parts.tracker
        like = RadixKey(array("q"), req.extra_key, cache_salt=req.cache_salt)
        kv_of: dict[str, DonorKV] = {}
        for donor_id, needed in needed_tokens(plan).items():
            held, reach = self._places.hold(like, donor_id, record.donors[donor_id], needed, locks)
            if held is None:
                tracker.provider.on_donor_lost(donor_id, reach)
                tracker.withdrawn(record, DeclineReason.STALE, "the donor's KV was evicted")
                return None
            kv_of[donor_id] = held
        slots = self._allocate(plan.claim_end - plan.exact_prefix_tokens)
        if slots is None:
            tracker.withdrawn(record, DeclineReason.CAPACITY, "not enough free slots for the claim")
            return None
        self.slots[req.rid] = slots
        self._fill(plan, slots, kv_of)
        return slots

    def _allocate(self, tokens: int) -> torch.Tensor | None:
        allocator = self._tree.token_to_kv_pool_allocator
        slots: torch.Tensor | None = allocator.alloc(tokens)
        if slots is None:
            evict_from_tree_cache(self._tree, tokens)
            slots = allocator.alloc(tokens)
        return slots

    def _fill(self, plan: ReusePlan, slots: torch.Tensor, kv_of: Mapping[str, DonorKV]) -> None:
        if self._parts.options.recompute_all:
            return
        start = plan.exact_prefix_tokens
        for run in plan.runs:
            own = slots[run.target_start - start : run.target_end - start]
            self._parts.copier.copy(kv_of[run.donor_id], run.donor_start, own, run.shift)

    def _command(self, record: SglangRequest, plan: ReusePlan, load_ms: float) -> FillCommand:
        options, claimed = self._parts.options, TokenRange(plan.exact_prefix_tokens, plan.claim_end)
        rid = record.request_id
        if options.recompute_all:
            return FillCommand(rid, record.tokens, (claimed,), claimed, load_ms, tokens_due=len(claimed))
        return FillCommand(
            rid,
            record.tokens,
            plan.compute,
            claimed,
            load_ms,
            plan.runs,
            options.selection(plan.recompute_fraction),
            options.step_tokens(plan),
            verification_positions(plan.runs if options.verify_loads else ()),
        )
