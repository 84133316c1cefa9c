"""The connector with a clock on every hook the engine calls: the time of our own code, without the noise of the
machine.

Each process writes its sums next to the event stream whenever a request ends or a step is over.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.vllm.hook_sums import sums_path
from semblend.integration.vllm.connector_v1 import SemBlendConnectorV1

HOOKS = (
    *("on_new_request", "get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta"),
    *("update_connector_output", "request_finished", "has_pending_block_frees", "get_kv_connector_stats"),
    *("start_load_kv", "wait_for_layer_load", "save_kv_layer", "wait_for_save", "get_transfer_results"),
    *("get_block_ids_with_load_errors", "build_connector_worker_meta"),
)
WRITE_AFTER = frozenset({"request_finished", "build_connector_worker_meta"})


class AccountedConnector(SemBlendConnectorV1):
    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        assert self._options.events is not None, "the sums are written beside the event stream"
        self._sums = dict.fromkeys(HOOKS, 0.0)
        self._sums_path = sums_path(self._options.events, role.name.lower())
        for name in HOOKS:
            setattr(self, name, partial(self._timed, name, getattr(self, name)))

    def _timed(self, name: str, hook: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return hook(*arguments, **options)
        finally:
            self._sums[name] += (time.perf_counter() - started) * 1e3
            if name in WRITE_AFTER:
                self._write()

    def _write(self) -> None:
        draft = self._sums_path.with_suffix(".draft")
        draft.write_text(json.dumps(self._sums))
        os.replace(draft, self._sums_path)
