"""The shape of TensorRT-LLM's KV cache connector interface, copied so that it can be used without the engine.

The engine constructs both classes with its arguments and calls their methods by name (it checks no base class). Its own
module imports GPU bindings, so these protocols are what our classes and our stubs are held to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class LlmRequest(Protocol):
    """The attributes of a request that we read. ``cache_salt`` is missing in older versions: the tenant is unknown."""

    @property
    def request_id(self) -> int: ...
    def get_tokens(self, beam: int) -> Sequence[int]: ...


class RequestData(Protocol):
    """One request of a scheduling step. Block ids are those that came with this step."""

    request_id: int
    new_tokens: list[int]
    new_block_ids: list[int]
    computed_position: int
    num_scheduled_tokens: int


class SchedulerOutput(Protocol):
    new_requests: list[Any]
    cached_requests: list[Any]


class ConnectorScheduler(Protocol):
    """``connector_scheduler_class``: runs on rank 0, its answers are broadcast."""

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> object: ...
    def get_num_new_matched_tokens(self, request: LlmRequest, num_computed_tokens: int) -> tuple[int, bool]: ...
    def request_finished(self, request: LlmRequest, cache_block_ids: list[int]) -> bool: ...
    def request_finished_by_layer_group(
        self, request: LlmRequest, cache_block_ids_by_layer_group: list[list[int]]
    ) -> bool: ...
    def update_state_after_alloc(self, request: LlmRequest, block_ids: list[int]) -> None: ...
    def update_state_after_alloc_by_layer_group(
        self, request: LlmRequest, block_ids_by_layer_group: list[list[int]]
    ) -> None: ...
    def wait_for_initialization(self) -> None: ...


class ConnectorWorker(Protocol):
    """``connector_worker_class``: one per rank. ``stream`` is a CUDA stream."""

    def bind_connector_meta(self, metadata: object) -> None: ...
    def get_connector_meta(self) -> object: ...
    def _clear_connector_meta(self) -> None: ...
    def register_forward_pass_callable(self) -> Callable[[], None] | None: ...
    def register_kv_caches(self, kv_cache_tensor: Any) -> None: ...
    def register_kv_cache_layout(self, layout: Any) -> None: ...
    def start_load_kv(self, stream: Any) -> None: ...
    def wait_for_layer_load(self, layer_idx: int, stream: Any) -> None: ...
    def save_kv_layer(self, layer_idx: int, stream: Any) -> None: ...
    def wait_for_save(self, stream: Any) -> None: ...
    def get_finished(
        self, finished_gen_req_ids: list[int], started_loading_req_ids: list[int]
    ) -> tuple[list[int], list[int]]: ...
