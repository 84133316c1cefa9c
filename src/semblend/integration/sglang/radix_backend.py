"""SGLang's radix cache with non-prefix reuse: the exact match first, then runs of donors, copied to own slots.

Follows the engine's admission contract: what lies beyond the exact match is reported as a host hit, loaded when the
scheduler admits the request, owned and freed by the request. Nothing computed in another context enters the tree.
"""

from __future__ import annotations

import time
from array import array
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams, MatchPrefixParams, MatchResult
from sglang.srt.mem_cache.common import evict_from_tree_cache
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from semblend.contract import DeclineReason, TokenRange
from semblend.integration.hints import read_hints
from semblend.integration.sglang.desk import needed_tokens
from semblend.integration.sglang.holes import HoleOrder
from semblend.integration.sglang.namespace import request_namespace
from semblend.integration.sglang.obstacles import obstacle_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semblend.integration.sglang.desk import Record
    from semblend.integration.sglang.start import Parts


class SemBlendRadixCache(UnifiedRadixCache):
    """Stock until ``begin`` is called with the parts; every step of ours runs inside the border."""

    def __init__(self, params: Any) -> None:
        self._parts: Parts | None = None
        self._slots: dict[str, torch.Tensor] = {}  # of requests that were admitted on loaded KV
        self._load_is_ours = False
        super().__init__(params)

    def begin(self, parts: Parts) -> None:
        self._parts = parts

    # -- look-up -----------------------------------------------------------------------------------------------------

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        result = super().match_prefix(params)
        if self._parts is None or params.req is None or result.host_hit_length:
            return result
        look_up = partial(self._beyond, self._parts, params, result)
        return self._parts.border.call("look_up", params.req.rid, look_up, result)

    def _beyond(self, parts: Parts, params: MatchPrefixParams, result: MatchResult) -> MatchResult:
        req, boundary = params.req, result.device_prefix_len
        tokens = np.asarray(params.key.token_ids, np.int64)
        record = parts.desk.known(req.rid)
        if record is None or len(record.tokens) != len(tokens):
            own = tokens.astype(np.uint32)
            namespace = request_namespace(
                parts.deployment, params.key.cache_salt, params.key.extra_key, require_salt=parts.options.require_salt
            )
            record = parts.desk.open(req.rid, own, namespace, read_hints(req.sampling_params.custom_params))
        limit = min(len(params.key), len(tokens) - 1)
        obstacle = obstacle_of(req) or ("it already holds KV" if req.kv.holds_kv else "")
        promised = parts.desk.claim(record, boundary, limit, obstacle, partial(self._resident, params.key))
        if not promised:
            return result
        return result._replace(
            host_hit_length=promised,
            last_host_node=result.last_device_node,
            best_match_node=result.last_device_node,
            full_kv_hit_length=max(result.full_kv_hit_length, boundary + promised),
        )

    def _resident(self, like: RadixKey, donor: NDArray[np.uint32], needed: int) -> int:
        """How many of a donor's first ``needed`` tokens, in whole pages, the tree holds on the device."""
        return self._find(like, donor, needed).device_prefix_len

    def _find(self, like: RadixKey, donor: NDArray[np.uint32], needed: int) -> MatchResult:
        """A donor's own place in the tree, which holds whole pages."""
        whole = -(-needed // self.page_size) * self.page_size
        ids = array("q", donor[:whole].astype(np.int64).tobytes())
        key = RadixKey(ids, like.extra_key, cache_salt=like.cache_salt)
        return super()._match_tree(MatchPrefixParams(key=key))

    # -- admission ---------------------------------------------------------------------------------------------------

    def init_load_back(self, params: InitLoadBackParams) -> tuple[int, Any] | None:
        self._load_is_ours = False
        req, parts = params.req, self._parts
        record = parts.desk.known(req.rid) if parts is not None and req is not None else None
        if parts is None or record is None or record.plan is None or record.is_loaded:
            return super().init_load_back(params)
        if params.host_hit_length != record.plan.claim_end - record.exact_prefix_tokens:
            return super().init_load_back(params)
        self._load_is_ours = True
        slots = parts.border.call("load", req.rid, partial(self._load, parts, req, record), None)
        if slots is None:
            self._take_back(parts, record)
            return 0, req.last_node
        return len(slots), req.last_node

    def _take_back(self, parts: Parts, record: Record) -> None:
        """Whatever a load that did not end well has left behind."""
        parts.board.withdraw(record.rid)
        if (slots := self._slots.pop(record.rid, None)) is not None:
            self.token_to_kv_pool_allocator.free(slots)
        if record.plan is not None:
            parts.desk.broken(record, DeclineReason.INTERNAL_ERROR, "the load failed")

    def load_back_is_cache_owned(self) -> bool:
        """False leaves the loaded slots to the request, which frees them like those it computed."""
        return False if self._load_is_ours else super().load_back_is_cache_owned()

    def _load(self, parts: Parts, req: Any, record: Record) -> torch.Tensor | None:
        """All or nothing: own slots, filled with the donors' KV but for the holes."""
        plan = record.plan
        assert plan is not None
        started = time.perf_counter()
        key = RadixKey(array("q"), req.extra_key, cache_salt=req.cache_salt)
        locks, slots_of = [], {}
        try:
            for donor_id, needed in needed_tokens(plan).items():
                found = self._find(key, record.donors[donor_id], needed)
                if found.device_prefix_len < needed:
                    parts.desk.provider.on_donor_lost(donor_id, found.device_prefix_len)
                    parts.desk.broken(record, DeclineReason.STALE, "the donor's KV left the tree")
                    return None
                locks.append(self.lock(found.last_device_node))  # making room must not take the donor
                slots_of[donor_id] = self._path(found.last_device_node, req.extra_key)
            slots = self._allocate(plan.claim_end - plan.exact_prefix_tokens)
            if slots is None:
                parts.desk.broken(record, DeclineReason.CAPACITY, "no room for the loaded tokens")
                return None
            self._slots[req.rid] = slots
            self._fill(parts, record, slots, slots_of)
        finally:
            for lock in locks:
                self.unlock(lock)
        parts.desk.loaded(record)
        claimed = TokenRange(plan.exact_prefix_tokens, plan.claim_end)
        ranges = (claimed,) if parts.options.recompute_all else plan.compute
        load_ms = (time.perf_counter() - started) * 1e3
        parts.board.post(HoleOrder(req.rid, record.tokens, ranges, claimed, load_ms))
        return slots

    def _allocate(self, tokens: int) -> torch.Tensor | None:
        allocator = self.token_to_kv_pool_allocator
        slots = allocator.alloc(tokens)
        if slots is None:
            evict_from_tree_cache(self, tokens)
            slots = allocator.alloc(tokens)
        return slots

    def _fill(self, parts: Parts, record: Record, slots: torch.Tensor, slots_of: Mapping[str, torch.Tensor]) -> None:
        plan = record.plan
        if plan is None or parts.options.recompute_all:
            return
        start = plan.exact_prefix_tokens
        for run in plan.runs:
            theirs = slots_of[run.donor_id][run.donor_start : run.donor_start + run.length]
            parts.copier.copy(theirs, slots[run.target_start - start : run.target_end - start], run.shift)

    def _path(self, node: Any, extra_key: str | None) -> torch.Tensor:
        """Slots from the root of the request's own tree down to ``node``."""
        path: torch.Tensor = self.tree_core.collect_full_device_indices(node, self.root_node_handle(extra_key))
        return path

    def prefix_device_indices(self, req: Any) -> torch.Tensor:
        slots = self._slots.get(req.rid)
        if slots is None:
            return super().prefix_device_indices(req)
        exact = req.prefix_len - len(slots)
        path = self._path(req.last_node, req.extra_key)
        assert exact >= 0
        assert len(path) >= exact, (req.rid, len(path), exact)
        return torch.cat([path[:exact], slots.to(path)])

    # -- what enters the tree, and the end ---------------------------------------------------------------------------

    def checkpoint(self, req: Any, *, up_to: int, **kwargs: Any) -> None:
        """Only what was computed exactly is inserted; the rest stays the request's own until it is freed."""
        if self._parts is None:
            super().checkpoint(req, up_to=up_to, **kwargs)
            return
        allowed = self._parts.desk.publishable(req.rid, up_to)
        super().checkpoint(req, up_to=allowed, **kwargs)
        published = self._parts.desk.cached
        self._parts.border.call("donor", req.rid, partial(published, req.rid, len(req.origin_input_ids), allowed), None)

    def on_release(self, req: Any, *, checkpointed: bool) -> None:
        super().on_release(req, checkpointed=checkpointed)
        self._release(req.rid)

    def release_aborted_request(self, handle: Any) -> None:
        super().release_aborted_request(handle)
        if self._parts is not None and handle.rid not in self._slots:  # one that runs is released with its KV
            self._release(handle.rid)

    def _release(self, rid: str) -> None:
        self._slots.pop(rid, None)
        if self._parts is not None:
            self._parts.board.withdraw(rid)
            self._parts.border.call("release", rid, partial(self._parts.desk.released, rid), None)

    def reset(self) -> None:
        super().reset()
        if self._parts is not None:
            self._slots.clear()
            self._parts.board.clear()
            self._parts.border.call("reset", "", self._parts.desk.reset, None)

    def release_host_resources(self) -> None:
        super().release_host_resources()
        if self._parts is not None:
            self._parts.border.call("shutdown", "", self._parts.close, None)
