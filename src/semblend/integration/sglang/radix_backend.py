"""SGLang's radix cache with non-prefix reuse: the exact match first, then runs of donors, copied to new slots.

Follows the engine's admission contract: what is claimed beyond the exact match is reported as a host hit, loaded when
the scheduler admits the request, owned and freed by the request. KV of another context never enters the tree.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams, MatchPrefixParams, MatchResult
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from semblend.integration.hints import read_hints
from semblend.integration.sglang.admission import Admission
from semblend.integration.sglang.donor_kv import store_of
from semblend.integration.sglang.donor_places import DonorPlaces, path_to
from semblend.integration.sglang.namespace import TreeTenant, request_namespace
from semblend.integration.sglang.provider import NoProvider
from semblend.integration.sglang.support import obstacle_of
from semblend.integration.sglang.tree_repair import TreeRepair

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semblend.contract import Namespace
    from semblend.integration.sglang.fleet_donors import FleetDonors
    from semblend.integration.sglang.parts import Parts
    from semblend.integration.sglang.provider import SemanticPrefixProvider


class SemBlendRadixCache(UnifiedRadixCache):
    """The stock cache until ``begin`` is called with the parts; all our code runs inside the border."""

    def __init__(self, params: Any) -> None:
        self._parts: Parts | None = None
        self._fleet: FleetDonors | None = None
        self._load_is_ours = False
        super().__init__(params)

    def begin(self, parts: Parts) -> None:
        self._fleet = parts.fleet
        self._places = DonorPlaces(self, parts.fleet.fetched if parts.fleet is not None else None)
        self._admission = Admission(self, parts, self._places)
        self._repair = TreeRepair(self, parts, self._places)
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
        reuse = read_hints(req.sampling_params.custom_params).reuse
        is_new = not parts.tracker.known(req.rid)
        if not is_new and self._fleet is None:
            return
        tokens = np.asarray(req.origin_input_ids, np.int64).astype(np.uint32)
        if is_new and reuse:
            parts.tracker.expect(req.rid, tokens, self._namespace(parts, req))
        if self._fleet is not None:
            self._arrived(self._fleet, parts, req, tokens, reuse=reuse)

    def _arrived(self, fleet: FleetDonors, parts: Parts, req: Any, tokens: NDArray[np.uint32], *, reuse: bool) -> None:
        is_wanted = reuse and not req.output_ids and not obstacle_of(req)  # not one that was sent back to the queue
        tenant = TreeTenant(req.extra_key, req.cache_salt)
        fleet.arrived(req.rid, tokens, self._namespace(parts, req), tenant, reuse=is_wanted)

    def check_prefetch_progress(self, request: Any) -> bool:
        """Whether a queued request may be admitted as far as the storage is concerned: the engine's own prefetch, and
        donors of other replicas that may still come in time."""
        if self._parts is not None and self._fleet is not None:
            waits = partial(self._fleet.borrowed.waits, request.rid)
            if self._parts.border.call("fleet", request.rid, waits, False):
                return False
        return bool(super().check_prefetch_progress(request))

    @property
    def awaits_donors(self) -> bool:
        return self._fleet is not None and self._fleet.borrowed.is_awaited

    def rest(self) -> None:
        """The engine has nothing to do but wait for donors."""
        if self._fleet is not None:
            self._fleet.borrowed.rest()

    def _namespace(self, parts: Parts, of: Any) -> Namespace:
        """``of``: a request or a key of the tree."""
        return request_namespace(parts.deployment, of.cache_salt, of.extra_key, require_salt=parts.options.require_salt)

    def _beyond(self, parts: Parts, params: MatchPrefixParams, result: MatchResult) -> MatchResult:
        req, boundary = params.req, result.device_prefix_len
        if self._fleet is not None:
            self._fleet.borrowed.take()
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
        promised = parts.tracker.claim(record, boundary, limit, obstacle, partial(self._places.resident, params.key))
        if not promised:
            return result
        return result._replace(
            host_hit_length=promised,
            last_host_node=result.last_device_node,
            best_match_node=result.last_device_node,
            full_kv_hit_length=max(result.full_kv_hit_length, boundary + promised),
        )

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
        slots = parts.border.call("load", req.rid, partial(self._admission.load, req, record), None)
        if slots is None:
            self._admission.take_back(record)
            return 0, req.last_node
        return len(slots), req.last_node

    def load_back_is_cache_owned(self) -> bool:
        """False: the request owns the loaded slots and frees them like those it computed."""
        return False if self._load_is_ours else super().load_back_is_cache_owned()

    def prefix_device_indices(self, req: Any) -> torch.Tensor:
        slots = self._admission.slots.get(req.rid) if self._parts is not None else None
        if slots is None or (self._parts is not None and self._parts.tracker.of(req) is None):
            return super().prefix_device_indices(req)
        exact = req.prefix_len - len(slots)
        path = path_to(self, req.last_node, req.extra_key)
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
            self._parts.border.call("repair", req.rid, partial(self._repair.answered, req, allowed, up_to), None)

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
        if (
            self._parts is not None and handle.rid not in self._admission.slots
        ):  # a running request is released with its KV
            self._release(handle.rid)

    def _release(self, rid: str) -> None:
        if self._parts is not None:
            self._admission.slots.pop(rid, None)
            if self._fleet is not None:
                self._fleet.borrowed.left(rid)
            self._parts.filler.withdraw(rid)
            self._parts.border.call("release", rid, partial(self._parts.tracker.released, rid), None)

    def reset(self) -> None:
        super().reset()
        if self._parts is not None:
            if (store := store_of(self.cache_controller)) is not None:
                store.clear()  # the engine also resets after a weight update, when old pages must not be used again
            if self._fleet is not None:
                self._fleet.forget_all()
            self._admission.slots.clear()
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
            self._parts.repairs.step(self._repair.extend, idle=idle)

    def release_host_resources(self) -> None:
        super().release_host_resources()
        if self._parts is not None:
            self._parts.border.call("shutdown", "", self._parts.close, None)
