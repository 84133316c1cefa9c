"""The two classes TensorRT-LLM loads by ``kv_connector_config``: thin facades over the leader and the worker half.

Experimental: written against the published interface and tested with stubs of it, never run inside the engine. A fault
of ours before a claim was made is contained here and becomes cold prefill.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from semblend.contract import Event, LookupFinished
from semblend.integration.border import Border
from semblend.integration.event_sink import EventSink
from semblend.integration.settings import handed_on
from semblend.integration.trtllm.audit import Audit
from semblend.integration.trtllm.commands import StepCommands
from semblend.integration.trtllm.interface import LlmRequest, SchedulerOutput
from semblend.integration.trtllm.link import link_of
from semblend.integration.trtllm.options import WHERE, parse_options
from semblend.integration.trtllm.start import installed_version, make_leader
from semblend.integration.trtllm.worker_half import WorkerHalf

log = logging.getLogger("semblend.trtllm")


class SemBlendConnectorScheduler:
    """``connector_scheduler_class``. Exists on rank 0."""

    supports_attention_dp = False

    def __init__(self, llm_args: Any) -> None:
        options = parse_options(handed_on(WHERE))
        self._audit = Audit(options.audit)
        self._sink = EventSink(options.events, log, "trtllm")
        self._border = Border(self._emit, log)
        self.leader = make_leader(llm_args, options, self._emit, installed_version())
        self._audit.note("scheduler_initialized", materialization=options.materialization)

    def _emit(self, event: Event) -> None:
        self._sink.write(event)
        facts: dict[str, Any] = {}
        if isinstance(event, LookupFinished) and (record := self.leader.known(int(event.request_id))) is not None:
            facts = {
                "kind": record.kind.value,
                "publication": record.load.publication.value,
                "num_new_matched_tokens": record.load.tokens,
            }
        self._audit.write(event, **facts)

    def get_num_new_matched_tokens(self, request: LlmRequest, num_computed_tokens: int) -> tuple[int, bool]:
        request_id = request.request_id
        tokens = self._border.call(
            "lookup",
            str(request_id),
            partial(self.leader.matched_tokens, request, num_computed_tokens),
            partial(self._withdraw, request_id),
        )
        return tokens, False

    def _withdraw(self, request_id: int) -> int:
        self.leader.withdraw(request_id)
        return 0

    def update_state_after_alloc(self, request: LlmRequest, block_ids: list[int]) -> None:
        """Not contained: a claim was made, and the engine will not compute what was claimed."""
        pages = self.leader.allocated(request, block_ids)
        if pages:
            self._audit.note("target_allocated", request_id=str(request.request_id), pages=pages)

    def update_state_after_alloc_by_layer_group(
        self, request: LlmRequest, block_ids_by_layer_group: list[list[int]]
    ) -> None:
        """A cache of several groups was refused at start-up, so nothing was claimed for it."""
        if len(block_ids_by_layer_group) == 1:
            self.update_state_after_alloc(request, block_ids_by_layer_group[0])

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> StepCommands:
        """Not contained either: the commands of this step fulfil its claims."""
        return self.leader.commands(scheduler_output)

    def request_finished(self, request: LlmRequest, cache_block_ids: list[int]) -> bool:
        """Pages were saved when the prefill ended, so the engine can free its blocks at once."""
        self._border.call("finish", str(request.request_id), partial(self.leader.finished, request), None)
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
    """``connector_worker_class``. One per rank."""

    supports_attention_dp = False

    def __init__(self, llm_args: Any) -> None:
        options = parse_options(handed_on(WHERE))
        self._loads_pages = options.materialization != "off"
        self._audit = Audit(options.audit)
        self._metadata: object = None
        self.half = WorkerHalf(link_of(llm_args), Border(self._audit.write, log))
        self._audit.note("worker_initialized")

    def bind_connector_meta(self, metadata: object) -> None:
        self._metadata = metadata

    def get_connector_meta(self) -> object:
        return self._metadata

    def _clear_connector_meta(self) -> None:
        self._metadata = None

    def register_forward_pass_callable(self) -> Callable[[], None] | None:
        return None

    def register_kv_caches(self, kv_cache_tensor: Any) -> None:
        if self._loads_pages:
            self.half.register(kv_cache_tensor)
        self._audit.note("kv_cache_registered", pages=len(kv_cache_tensor))

    def register_kv_cache_layout(self, layout: Any) -> None:
        tensor = layout.as_single_pool_tensor()
        if tensor is None:
            self.half.refuse("the cache has more than one pool of pages")
        elif any(getattr(group, "window_size", None) is not None for group in getattr(layout, "groups", ())):
            self.half.refuse("the cache keeps a sliding window: blocks outside it have no page")
        else:
            self.register_kv_caches(tensor)

    def start_load_kv(self, stream: Any) -> None:
        if isinstance(self._metadata, StepCommands):
            self.half.load(self._metadata, stream)

    def wait_for_layer_load(self, layer_idx: int, stream: Any) -> None:
        """Loads were enqueued on the forward pass's own stream before it began."""

    def save_kv_layer(self, layer_idx: int, stream: Any) -> None:
        """Whole pages are saved when the forward pass is done."""

    def wait_for_save(self, stream: Any) -> None:
        if isinstance(self._metadata, StepCommands):
            self.half.save(self._metadata, stream)

    def get_finished(
        self, finished_gen_req_ids: list[int], started_loading_req_ids: list[int]
    ) -> tuple[list[int], list[int]]:
        """All transfers are synchronous, so nothing is pending."""
        return list(finished_gen_req_ids), list(started_loading_req_ids)

    def close(self) -> None:
        self._audit.close()
