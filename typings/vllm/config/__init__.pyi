from contextlib import AbstractContextManager
from typing import Any

from vllm.config.kv_transfer import KVTransferConfig as KVTransferConfig

class ModelConfig:
    model: str
    served_model_name: str
    tokenizer: str
    revision: str | None
    tokenizer_revision: str | None
    dtype: Any
    max_model_len: int
    runner_type: str
    enforce_eager: bool
    hf_config: Any
    hf_text_config: Any
    @property
    def architecture(self) -> str: ...
    @property
    def use_mla(self) -> bool: ...
    @property
    def is_hybrid(self) -> bool: ...
    @property
    def is_multimodal_model(self) -> bool: ...
    @property
    def uses_alibi(self) -> bool: ...
    @property
    def is_encoder_decoder(self) -> bool: ...
    def get_head_size(self) -> int: ...
    def get_vocab_size(self) -> int: ...
    def get_num_layers(self, parallel_config: ParallelConfig) -> int: ...

class CacheConfig:
    block_size: int
    cache_dtype: str
    enable_prefix_caching: bool
    sliding_window: int | None
    kv_sharing_fast_prefill: bool
    num_gpu_blocks: int | None
    hash_block_size: int | None

class ParallelConfig:
    pipeline_parallel_size: int
    tensor_parallel_size: int
    data_parallel_size: int
    data_parallel_rank: int
    decode_context_parallel_size: int
    prefill_context_parallel_size: int
    worker_cls: str
    rank: int
    world_size: int

class SchedulerConfig:
    max_num_batched_tokens: int
    max_num_seqs: int
    async_scheduling: bool | None

class DeviceConfig:
    device_type: str

class CompilationConfig:
    static_forward_context: dict[str, Any]
    cudagraph_mode: CUDAGraphMode
    mode: CompilationMode

class CompilationMode:
    NONE: CompilationMode

class CUDAGraphMode:
    NONE: CUDAGraphMode
    FULL: CUDAGraphMode

class KVEventsConfig:
    enable_kv_cache_events: bool

class VllmConfig:
    model_config: ModelConfig
    cache_config: CacheConfig
    parallel_config: ParallelConfig
    scheduler_config: SchedulerConfig
    device_config: DeviceConfig
    compilation_config: CompilationConfig
    kv_transfer_config: KVTransferConfig | None
    kv_events_config: KVEventsConfig | None
    speculative_config: Any | None
    lora_config: Any | None
    @property
    def use_v2_model_runner(self) -> bool: ...

def set_current_vllm_config(
    vllm_config: VllmConfig, check_compile: bool = False, prefix: str | None = None
) -> AbstractContextManager[None]: ...
