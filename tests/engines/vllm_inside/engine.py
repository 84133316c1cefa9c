"""The engine's names these tests use beyond the stubbed surface, untyped and in one place."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def _of(module: str, name: str) -> Any:
    return getattr(import_module(f"vllm.{module}"), name)


AsyncScheduler = _of("v1.core.sched.async_scheduler", "AsyncScheduler")
Scheduler = _of("v1.core.sched.scheduler", "Scheduler")
PauseState = _of("v1.core.sched.interface", "PauseState")
StructuredOutputManager = _of("v1.structured_output", "StructuredOutputManager")
KVCacheManager = _of("v1.core.kv_cache_manager", "KVCacheManager")
BlockPool = _of("v1.core.block_pool", "BlockPool")
Request = _of("v1.request", "Request")
RequestStatus = _of("v1.request", "RequestStatus")
SamplingParams = _of("sampling_params", "SamplingParams")
ModelRunnerOutput = _of("v1.outputs", "ModelRunnerOutput")
KVConnectorOutput = _of("v1.outputs", "KVConnectorOutput")
KVOutputAggregator = _of("distributed.kv_transfer.kv_connector.utils", "KVOutputAggregator")
get_request_block_hasher = _of("v1.core.kv_cache_utils", "get_request_block_hasher")
init_none_hash = _of("v1.core.kv_cache_utils", "init_none_hash")
get_block_hash = _of("v1.core.kv_cache_utils", "get_block_hash")
maybe_convert_block_hash = _of("v1.core.kv_cache_utils", "maybe_convert_block_hash")
sha256 = _of("utils.hashing", "sha256")
EngineArgs = _of("engine.arg_utils", "EngineArgs")
KVCacheConfig = _of("v1.kv_cache_interface", "KVCacheConfig")
KVCacheGroupSpec = _of("v1.kv_cache_interface", "KVCacheGroupSpec")
FullAttentionSpec = _of("v1.kv_cache_interface", "FullAttentionSpec")
MambaSpec = _of("v1.kv_cache_interface", "MambaSpec")
SlidingWindowSpec = _of("v1.kv_cache_interface", "SlidingWindowSpec")
BlockStored = _of("distributed.kv_events", "BlockStored")
BlockRemoved = _of("distributed.kv_events", "BlockRemoved")
KVCacheLayout = _of("v1.kv_cache_layout", "KVCacheLayout")
KVEventsConfig = _of("config", "KVEventsConfig")
ExampleConnector = _of("distributed.kv_transfer.kv_connector.v1.example_connector", "ExampleConnector")
MultiConnector = _of("distributed.kv_transfer.kv_connector.v1.multi_connector", "MultiConnector")
