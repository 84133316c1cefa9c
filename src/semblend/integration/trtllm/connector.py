"""Never run in TensorRT-LLM: the two classes its ``kv_connector_config`` names, written to its published interface.

They search and report and claim no token, so the engine computes every prompt as without them. A fault of ours is
contained. The engine checks no base class; it calls these methods by name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from semblend.contract import Event
from semblend.integration.border import Border
from semblend.integration.event_sink import EventSink
from semblend.integration.settings import handed_on
from semblend.integration.trtllm.audit import Audit
from semblend.integration.trtllm.namespace import deployment_namespace
from semblend.integration.trtllm.options import WHERE, parse_options
from semblend.integration.trtllm.search import DonorSearch, LlmRequest
from semblend.pipeline.planner import Planner
from semblend.settings import Settings

log = logging.getLogger("semblend.trtllm")


class SemBlendConnectorScheduler:
    """``connector_scheduler_class``. Exists on rank 0."""

    supports_attention_dp = False

    def __init__(self, llm_args: Any) -> None:
        options = parse_options(handed_on(WHERE))
        deployment = deployment_namespace(llm_args)
        if unknown := [name for name in deployment.unknown_components() if name not in ("tenant", "lora")]:
            log.warning("SemBlend declines every request: %s unknown from the engine's arguments", ", ".join(unknown))
        self._audit = Audit(options.audit)
        self._sink = EventSink(options.events, log, "trtllm")
        self._border = Border(self._emit, log)
        settings = replace(Settings.from_environment(), embedder="none")  # the engine passes tokens, no text
        planner = Planner(settings=settings, gates=options.gates, budget_bytes=options.index_bytes)
        self.search = DonorSearch(options, planner, deployment, self._emit)
        self._audit.note("scheduler_initialized")

    def _emit(self, event: Event) -> None:
        self._sink.write(event)
        self._audit.write(event)

    def get_num_new_matched_tokens(self, request: LlmRequest, num_computed_tokens: int) -> tuple[int, bool]:
        """Always no token: found content is reported only."""
        request_id = request.request_id
        look_up = partial(self.search.look_up, request, num_computed_tokens)
        self._border.call("lookup", str(request_id), look_up, partial(self.search.withdraw, request_id))
        return 0, False

    def update_state_after_alloc(self, request: LlmRequest, block_ids: list[int]) -> None:
        """Nothing was claimed."""

    def update_state_after_alloc_by_layer_group(
        self, request: LlmRequest, block_ids_by_layer_group: list[list[int]]
    ) -> None:
        """Nothing was claimed."""

    def build_connector_meta(self, scheduler_output: Any) -> object:
        return None

    def request_finished(self, request: LlmRequest, cache_block_ids: list[int]) -> bool:
        """False: the engine frees the blocks at once."""
        self._border.call("finish", str(request.request_id), partial(self.search.finished, request), None)
        return False

    def request_finished_by_layer_group(
        self, request: LlmRequest, cache_block_ids_by_layer_group: list[list[int]]
    ) -> bool:
        return self.request_finished(request, [])

    def wait_for_initialization(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """For tests and embedding programs; the engine never calls it."""
        self._audit.close()
        self._sink.close()


class SemBlendConnectorWorker:
    """``connector_worker_class``. One per rank; the engine asks for it, and it moves no KV."""

    supports_attention_dp = False

    def __init__(self, llm_args: Any) -> None:
        self._metadata: object = None

    def bind_connector_meta(self, metadata: object) -> None:
        self._metadata = metadata

    def get_connector_meta(self) -> object:
        return self._metadata

    def _clear_connector_meta(self) -> None:
        self._metadata = None

    def register_forward_pass_callable(self) -> Callable[[], None] | None:
        return None

    def register_kv_caches(self, kv_cache_tensor: Any) -> None: ...
    def register_kv_cache_layout(self, layout: Any) -> None: ...
    def start_load_kv(self, stream: Any) -> None: ...
    def wait_for_layer_load(self, layer_idx: int, stream: Any) -> None: ...
    def save_kv_layer(self, layer_idx: int, stream: Any) -> None: ...
    def wait_for_save(self, stream: Any) -> None: ...

    def get_finished(
        self, finished_gen_req_ids: list[int], started_loading_req_ids: list[int]
    ) -> tuple[list[int], list[int]]:
        return list(finished_gen_req_ids), list(started_loading_req_ids)
