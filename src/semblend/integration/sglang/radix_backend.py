"""SGLang's radix cache with non-prefix reuse: the exact match first, then runs of donors, copied to new slots.

Follows the engine's admission contract: what is claimed beyond the exact match is reported as a host hit, loaded when
the scheduler admits the request, owned and freed by the request. KV of another context never enters the tree.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sglang.srt.mem_cache.base_prefix_cache import (
    InitLoadBackParams,
    InsertParams,
    MatchPrefixParams,
    MatchResult,
)
from sglang.srt.mem_cache.common import evict_from_tree_cache
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from semblend.contract import DeclineReason, TokenRange
from semblend.integration.claims import verification_positions
from semblend.integration.hints import read_hints
from semblend.integration.sglang.donor_kv import DonorCopier, DonorKV, store_of, stored_hashes
from semblend.integration.sglang.gaps import FillCommand, GapFiller
from semblend.integration.sglang.namespace import request_namespace
from semblend.integration.sglang.prefill import Prefill
from semblend.integration.sglang.provider import NoProvider
from semblend.integration.sglang.repair import Extended, RepairJob, Repairs
from semblend.integration.sglang.request_tracker import Reach, RequestTracker, SglangRequest, needed_tokens
from semblend.integration.sglang.support import obstacle_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semblend.contract import Namespace
    from semblend.integration.announce import Announcer
    from semblend.integration.border import Border
    from semblend.integration.event_sink import EventSink
    from semblend.integration.sglang.options import SglangOptions
    from semblend.integration.sglang.provider import SemanticPrefixProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the cache needs to serve more than the stock one."""

    options: SglangOptions
    deployment: Namespace
    tracker: RequestTracker
    filler: GapFiller
    copier: DonorCopier
    prefill: Prefill
    repairs: Repairs
    border: Border
    sink: EventSink
    announcer: Announcer

    def close(self) -> None:
        self.announcer.close()
        self.tracker.provider.on_shutdown()
        self.sink.close()


class SemBlendRadixCache(UnifiedRadixCache):
    """The stock cache until ``begin`` is called with the parts; all our code runs inside the border."""

    def __init__(self, params: Any) -> None:
        self._parts: Parts | None = None
        self._slots: dict[str, torch.Tensor] = {}  # of requests that were admitted on loaded KV
        self._load_is_ours = False
        super().__init__(params)

    def begin(self, parts: Parts) -> None:
        self._parts = parts

    def set_semantic_provider(self, provider: SemanticPrefixProvider | None) -> None:
        """Replace the provider; None leaves every request to the engine. Look-ups that were made stay valid."""
        if self._parts is None:
            raise RuntimeError("SemBlend is disabled here; the start-up log says why")
        self._parts.tracker.provider.on_shutdown()
        self._parts.tracker.provider = provider or NoProvider()
        self._parts.tracker.provider.on_init()

    # -- look-up -------------------------------------------------------------------------------------------------------

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        result = self._match_prefix_exact(params)
        if self._parts is None or params.req is None:
            return result
        if result.host_hit_length:  # the engine loads these tokens itself, and exactly
            if not self._is_of_another(params.req):
                self._parts.tracker.overtaken(params.req.rid)
            return result
        look_up = partial(self._beyond, self._parts, params, result)
        return self._parts.border.call("look_up", params.req.rid, look_up, result)

    def _match_prefix_exact(self, params: MatchPrefixParams) -> MatchResult:
        """The engine's own answer, without the provider."""
        return super().match_prefix(params)

    def expect(self, req: Any) -> None:
        """A request was queued: it will be looked up."""
        if self._parts is not None:
            self._parts.border.call("arrival", req.rid, partial(self._expect, self._parts, req), None)

    def _expect(self, parts: Parts, req: Any) -> None:
        if not parts.tracker.known(req.rid) and read_hints(req.sampling_params.custom_params).reuse:
            tokens = np.asarray(req.origin_input_ids, np.int64).astype(np.uint32)
            parts.tracker.expect(req.rid, tokens, self._namespace(parts, req))

    def _namespace(self, parts: Parts, of: Any) -> Namespace:
        """``of``: a request or a key of the tree."""
        return request_namespace(parts.deployment, of.cache_salt, of.extra_key, require_salt=parts.options.require_salt)

    def _beyond(self, parts: Parts, params: MatchPrefixParams, result: MatchResult) -> MatchResult:
        req, boundary = params.req, result.device_prefix_len
        tokens = np.asarray(params.key.token_ids, np.int64)
        record = parts.tracker.of(req)
        if record is None or len(record.tokens) != len(tokens):
            hints = read_hints(req.sampling_params.custom_params)
            own, namespace = tokens.astype(np.uint32), self._namespace(parts, params.key)
            record = parts.tracker.open(req.rid, own, namespace, hints, req)
            parts.repairs.arrived(own, namespace)
        if record is None:
            return result
        limit = min(len(params.key), len(tokens) - 1)
        obstacle = obstacle_of(req) or ("the request already holds KV" if req.kv.holds_kv else "")
        promised = parts.tracker.claim(record, boundary, limit, obstacle, partial(self._resident, params.key))
        if not promised:
            return result
        return result._replace(
            host_hit_length=promised,
            last_host_node=result.last_device_node,
            best_match_node=result.last_device_node,
            full_kv_hit_length=max(result.full_kv_hit_length, boundary + promised),
        )

    def _resident(self, like: RadixKey, donor: NDArray[np.uint32], needed: int) -> Reach:
        """How many of a donor's first ``needed`` tokens the device or the store holds, in whole pages."""
        key = self._donor_key(like, donor, needed)
        on_device = super()._match_tree(MatchPrefixParams(key=key)).device_prefix_len
        store = store_of(self.cache_controller)
        if on_device >= needed or store is None:
            return Reach(on_device)
        stored = store.batch_exists(stored_hashes(key, on_device, self.page_size))
        return Reach(on_device + self.page_size * stored, "host")

    def _donor_key(self, like: RadixKey, donor: NDArray[np.uint32], needed: int) -> RadixKey:
        """A donor's key in the tree, which holds whole pages."""
        whole = -(-needed // self.page_size) * self.page_size
        ids = array("q", donor[:whole].astype(np.int64).tobytes())
        return RadixKey(ids, like.extra_key, cache_salt=like.cache_salt)

    def prefetch_from_storage(
        self,
        request: Any,
        last_host_node_id: Any,
        new_input_tokens: Any,
        last_hash: str | None = None,
        prefix_keys: list[str] | None = None,
        matched_prefix_tokens: Any = None,
        *given: Any,
        **named: Any,
    ) -> bool | None:
        """Storage continues the exact match only: the scheduler also counts our claim as a prefix, which it is not."""
        record = self._parts.tracker.known(request.rid) if self._parts is not None else None
        owner: Any = record.owner if record is not None and record.plan is not None else None
        if record is not None and owner is not None and matched_prefix_tokens is not None:
            exact = record.exact_prefix_tokens
            if hasattr(owner, "storage_prefetch_last_match_len"):
                owner.storage_prefetch_last_match_len = exact  # otherwise a withdrawn claim looks like a lost prefix
            new_input_tokens = matched_prefix_tokens[exact:] + new_input_tokens
            matched_prefix_tokens = matched_prefix_tokens[:exact]
        return super().prefetch_from_storage(
            request, last_host_node_id, new_input_tokens, last_hash, prefix_keys, matched_prefix_tokens, *given, **named
        )

    # -- admission -----------------------------------------------------------------------------------------------------

    def init_load_back(self, params: InitLoadBackParams) -> tuple[int, Any] | None:
        self._load_is_ours = False
        req, parts = params.req, self._parts
        record = parts.tracker.of(req) if parts is not None and req is not None else None
        if parts is None or record is None or record.plan is None or record.is_accepted:
            return super().init_load_back(params)
        promised = record.plan.claim_end - record.exact_prefix_tokens
        if params.host_hit_length != promised or params.best_match_node != req.last_node:
            return super().init_load_back(params)
        if not parts.filler.has_room(parts.options.step_tokens(record.plan)):
            return None  # this step is full; the engine tries again in the next
        self._load_is_ours = True
        slots = parts.border.call("load", req.rid, partial(self._load, parts, req, record), None)
        if slots is None:
            self._take_back(parts, record)
            return 0, req.last_node
        return len(slots), req.last_node

    def _take_back(self, parts: Parts, record: SglangRequest) -> None:
        """Clean up after a load that failed."""
        parts.filler.withdraw(record.request_id)
        if (slots := self._slots.pop(record.request_id, None)) is not None:
            self.token_to_kv_pool_allocator.free(slots)
        if record.plan is not None:
            parts.tracker.withdrawn(record, DeclineReason.INTERNAL_ERROR, "the load failed")

    def load_back_is_cache_owned(self) -> bool:
        """False: the request owns the loaded slots and frees them like those it computed."""
        return False if self._load_is_ours else super().load_back_is_cache_owned()

    def _load(self, parts: Parts, req: Any, record: SglangRequest) -> torch.Tensor | None:
        """All or nothing: new slots, filled with the donors' KV except for the gaps."""
        plan = record.plan
        assert plan is not None
        started = time.perf_counter()
        key = RadixKey(array("q"), req.extra_key, cache_salt=req.cache_salt)
        if self.ongoing_load_back:
            parts.tracker.withdrawn(record, DeclineReason.CAPACITY, "the engine is loading tree slots from the host")
            return None
        locks: list[Any] = []
        kv_of: dict[str, DonorKV] = {}
        try:
            for donor_id, needed in needed_tokens(plan).items():
                held, reach = self._hold(self._donor_key(key, record.donors[donor_id], needed), needed, locks)
                if held is None:
                    parts.tracker.provider.on_donor_lost(donor_id, reach)
                    parts.tracker.withdrawn(record, DeclineReason.STALE, "the donor's KV was evicted")
                    return None
                kv_of[donor_id] = held
            slots = self._allocate(plan.claim_end - plan.exact_prefix_tokens)
            if slots is None:
                parts.tracker.withdrawn(record, DeclineReason.CAPACITY, "not enough free slots for the claim")
                return None
            self._slots[req.rid] = slots
            self._fill(parts, record, slots, kv_of)
        finally:
            for lock in locks:
                self.unlock(lock)
        parts.tracker.loaded(record)
        claimed = TokenRange(plan.exact_prefix_tokens, plan.claim_end)
        load_ms = (time.perf_counter() - started) * 1e3
        if parts.options.recompute_all:
            command = FillCommand(req.rid, record.tokens, (claimed,), claimed, load_ms, tokens_due=len(claimed))
        else:
            selection = parts.options.selection(plan.recompute_fraction)
            checked = plan.runs if parts.options.verify_loads else ()
            command = FillCommand(
                req.rid,
                record.tokens,
                plan.compute,
                claimed,
                load_ms,
                plan.runs,
                selection,
                parts.options.step_tokens(plan),
                verification_positions(checked),
            )
        parts.filler.post(command)
        return slots

    def _hold(self, key: RadixKey, needed: int, locks: list[Any]) -> tuple[DonorKV | None, int]:
        """A donor's KV, locked until it is copied; or None. And how many of its first tokens are still held."""
        found = super()._match_tree(MatchPrefixParams(key=key))
        on_device, store = found.device_prefix_len, store_of(self.cache_controller)
        pages: list[torch.Tensor] = []
        if on_device < needed and store is not None:
            pages = store.leading_pages(stored_hashes(key, on_device, self.page_size))
        reach = on_device + self.page_size * len(pages)
        if reach < needed:
            return None, reach
        locks.append(self.lock(found.last_device_node))  # an eviction for room must not take the donor
        return DonorKV(self._path(found.last_device_node, key.extra_key), pages), reach

    def _allocate(self, tokens: int) -> torch.Tensor | None:
        allocator = self.token_to_kv_pool_allocator
        slots = allocator.alloc(tokens)
        if slots is None:
            evict_from_tree_cache(self, tokens)
            slots = allocator.alloc(tokens)
        return slots

    def _fill(self, parts: Parts, record: SglangRequest, slots: torch.Tensor, kv_of: Mapping[str, DonorKV]) -> None:
        plan = record.plan
        if plan is None or parts.options.recompute_all:
            return
        start = plan.exact_prefix_tokens
        for run in plan.runs:
            own = slots[run.target_start - start : run.target_end - start]
            parts.copier.copy(kv_of[run.donor_id], run.donor_start, own, run.shift)

    def _path(self, node: Any, extra_key: str | None) -> torch.Tensor:
        """Slots from the root of the request's tree down to ``node``."""
        path: torch.Tensor = self.tree_core.collect_full_device_indices(node, self.root_node_handle(extra_key))
        return path

    def prefix_device_indices(self, req: Any) -> torch.Tensor:
        slots = self._slots.get(req.rid)
        if slots is None or (self._parts is not None and self._parts.tracker.of(req) is None):
            return super().prefix_device_indices(req)
        exact = req.prefix_len - len(slots)
        path = self._path(req.last_node, req.extra_key)
        assert exact >= 0
        assert len(path) >= exact, (req.rid, len(path), exact)
        return torch.cat([path[:exact], slots.to(path)])

    # -- insertion and release -----------------------------------------------------------------------------

    def checkpoint(self, req: Any, *, up_to: int, **kwargs: Any) -> None:
        """Only exact KV is inserted; the request keeps the rest until it is freed."""
        if self._parts is None or self._is_of_another(req):
            super().checkpoint(req, up_to=up_to, **kwargs)
            return
        allowed = self._parts.tracker.publishable(req.rid, up_to)
        super().checkpoint(req, up_to=allowed, **kwargs)
        published = self._parts.tracker.cached
        self._parts.border.call("donor", req.rid, partial(published, req.rid, len(req.origin_input_ids), allowed), None)
        if self._parts.repairs.is_on and req.finished():
            self._parts.border.call("repair", req.rid, partial(self._answered, self._parts, req, allowed, up_to), None)

    def on_release(self, req: Any, *, checkpointed: bool) -> None:
        super().on_release(req, checkpointed=checkpointed)
        if not self._is_of_another(req):
            self._release(req.rid)

    def _is_of_another(self, req: Any) -> bool:
        """Whether the record under this id belongs to another request."""
        record = self._parts.tracker.known(req.rid) if self._parts is not None else None
        return record is not None and record.owner is not req

    def release_aborted_request(self, handle: Any) -> None:
        super().release_aborted_request(handle)
        if self._parts is not None and handle.rid not in self._slots:  # a running request is released with its KV
            self._release(handle.rid)

    def _release(self, rid: str) -> None:
        self._slots.pop(rid, None)
        if self._parts is not None:
            self._parts.filler.withdraw(rid)
            self._parts.border.call("release", rid, partial(self._parts.tracker.released, rid), None)

    def reset(self) -> None:
        super().reset()
        if self._parts is not None:
            if (store := store_of(self.cache_controller)) is not None:
                store.clear()  # the engine also resets after a weight update, when old pages must not be used again
            self._slots.clear()
            self._parts.filler.clear()
            self._parts.repairs.clear()
            self._parts.border.call("reset", "", self._parts.tracker.reset, None)

    # -- repair ---------------------------------------------------------------------------------------------

    @property
    def is_repairing(self) -> bool:
        return self._parts is not None and len(self._parts.repairs) > 0

    def repair(self, *, idle: bool) -> None:
        """One engine step is over, or the engine is idle: compute a slice of a repair, if there is room for it."""
        if self._parts is not None:
            self._parts.repairs.step(partial(self._extend, self._parts), idle=idle)

    def _answered(self, parts: Parts, req: Any, published: int, up_to: int) -> None:
        """A request has ended, and the tree holds the first ``published`` of its tokens, whole pages of them."""
        record = parts.tracker.of(req)
        if record is None or not len(req.output_ids):
            return
        tokens = np.asarray(req.full_untruncated_fill_ids[:up_to], np.int64).astype(np.uint32)
        end = str(req.finished_reason.to_json()["type"])
        parts.repairs.answered(tokens, record.namespace, end)
        if published >= up_to or record.skip_insert:
            return
        job = RepairJob(
            rid=req.rid,
            tokens=tokens,
            prompt_tokens=len(req.origin_input_ids),
            namespace=record.namespace,
            extra_key=req.extra_key,
            cache_salt=req.cache_salt,
            is_donor=record.hints.capture is not False,
            reached=published // self.page_size * self.page_size,
        )
        parts.repairs.add(job, end)

    def _extend(self, parts: Parts, job: RepairJob, max_tokens: int) -> Extended:
        """Compute what follows the part of a job that the tree holds, and insert it. Evicts nothing."""
        like = RadixKey(array("q"), job.extra_key, cache_salt=job.cache_salt)
        key = self._donor_key(like, job.tokens, len(job.tokens))
        found = super()._match_tree(MatchPrefixParams(key=key))
        start = found.device_prefix_len
        end = min(start + max_tokens, len(job.tokens))
        allocator = self.token_to_kv_pool_allocator
        slots = allocator.alloc(end - start) if end > start else None
        if slots is None:
            return Extended(start, start)
        path = self._path(found.last_device_node, job.extra_key)
        values = torch.cat([path[:start], slots.to(path)])
        try:
            parts.prefill.compute(job.tokens[start:end].astype(np.int64), values)
        except BaseException:
            allocator.free(slots)
            raise
        self.insert(InsertParams(key=key[:end], value=values, prev_prefix_len=start, inserted_len=start))
        return Extended(start, end)

    def release_host_resources(self) -> None:
        super().release_host_resources()
        if self._parts is not None:
            self._parts.border.call("shutdown", "", self._parts.close, None)
