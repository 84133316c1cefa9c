"""Repairs in the radix tree: which ended requests are computed again, and a slice of one, inserted at once."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sglang.srt.mem_cache.base_prefix_cache import InsertParams
from sglang.srt.mem_cache.radix_cache import RadixKey

from semblend.integration.sglang.donor_places import path_to, tree_key
from semblend.integration.sglang.repair import Extended, RepairJob

if TYPE_CHECKING:
    from semblend.integration.sglang.donor_places import DonorPlaces
    from semblend.integration.sglang.parts import Parts


class TreeRepair:
    def __init__(self, tree: Any, parts: Parts, places: DonorPlaces) -> None:
        self._tree = tree
        self._parts = parts
        self._places = places

    def answered(self, req: Any, published: int, up_to: int) -> None:
        """A request has ended, and the tree holds the first ``published`` of its tokens, whole pages of them."""
        repairs, record = self._parts.repairs, self._parts.tracker.of(req)
        if record is None or not len(req.output_ids):
            return
        tokens = np.asarray(req.full_untruncated_fill_ids[:up_to], np.int64).astype(np.uint32)
        end = str(req.finished_reason.to_json()["type"])
        repairs.answered(tokens, record.namespace, end)
        if published >= up_to or record.skip_insert:
            return
        page = self._tree.page_size
        job = RepairJob(
            rid=req.rid,
            tokens=tokens,
            prompt_tokens=len(req.origin_input_ids),
            namespace=record.namespace,
            extra_key=req.extra_key,
            cache_salt=req.cache_salt,
            is_donor=record.hints.capture is not False,
            reached=published // page * page,
        )
        repairs.add(job, end)

    def extend(self, job: RepairJob, max_tokens: int) -> Extended:
        """Compute what follows the part of a job that the tree holds, and insert it. Evicts nothing."""
        tree = self._tree
        like = RadixKey(array("q"), job.extra_key, cache_salt=job.cache_salt)
        key = tree_key(like, job.tokens, len(job.tokens), tree.page_size)
        found = self._places.match(key)
        start = found.device_prefix_len
        end = min(start + max_tokens, len(job.tokens))
        allocator = tree.token_to_kv_pool_allocator
        slots = allocator.alloc(end - start) if end > start else None
        if slots is None:
            return Extended(start, start)
        path = path_to(tree, found.last_device_node, job.extra_key)
        values = torch.cat([path[:start], slots.to(path)])
        try:
            self._parts.prefill.compute(job.tokens[start:end].astype(np.int64), values)
        except BaseException:
            allocator.free(slots)
            raise
        tree.insert(InsertParams(key=key[:end], value=values, prev_prefix_len=start, inserted_len=start))
        return Extended(start, end)
