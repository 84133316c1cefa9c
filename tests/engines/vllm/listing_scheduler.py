"""Loaded by the engine (``--scheduler-cls``): vLLM's own scheduler, which lists after every step what is cached."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from vllm.v1.core.kv_cache_utils import get_block_hash  # type: ignore[attr-defined]
from vllm.v1.core.sched.scheduler import Scheduler  # type: ignore[import-not-found]

LISTING = "KV_LISTING_PATH"


class ListingScheduler(Scheduler):  # type: ignore[misc]
    """The list is of the engine's own table, not of what it announces."""

    steps = 0

    def update_from_output(self, *arguments: Any, **named: Any) -> Any:
        outputs = super().update_from_output(*arguments, **named)
        self.steps += 1
        cached = self.kv_cache_manager.block_pool.cached_block_hash_to_block._cache
        path = Path(os.environ[LISTING])
        beside = path.with_suffix(".new")
        hashes = [get_block_hash(key).hex() for key in cached]
        beside.write_text(json.dumps({"steps": self.steps, "hashes": hashes}))
        beside.replace(path)
        return outputs
