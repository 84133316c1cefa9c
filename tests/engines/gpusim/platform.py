"""A vLLM platform that runs the engine's GPU code on CPU tensors: model runners, metadata builders, cache layout.

Everything between the scheduler and the attention kernels is the engine's own; the kernels are ``kernels.py``,
the ``flashinfer`` substitute or vLLM's Triton kernels, interpreted.
"""

from __future__ import annotations

from typing import Any

from tests.engines.gpusim import kernels
from tests.engines.gpusim.configuration import simulated_backend
from tests.engines.gpusim.engine import CpuPlatform, DeviceCapability, engine_module

GPU_BLOCK_TOKENS = 16  # what CUDA platforms use unless --block-size is given


class SimulatedGpu(CpuPlatform):
    """Differs from the CPU platform where a GPU platform does: backends, block size, async scheduling."""

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> Any:
        return DeviceCapability(*simulated_backend().capability)

    @classmethod
    def get_attn_backend_cls(cls, selected_backend: Any, attn_selector_config: Any, num_heads: Any = None) -> str:
        backend = simulated_backend()
        kernels.install(backend)
        path: str = engine_module("v1.attention.backends.registry").AttentionBackendEnum[backend.engine_name].get_path()
        return path

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        cache, scheduler = vllm_config.cache_config, vllm_config.scheduler_config
        block_size = cache.block_size if cache.user_specified_block_size else GPU_BLOCK_TOKENS
        wants_async = scheduler.async_scheduling
        super().check_and_update_config(vllm_config)
        cache.block_size, scheduler.async_scheduling = block_size, wants_async

    @classmethod
    def register_triton_kernel_overrides(cls) -> None:
        """Nothing is overridden: Triton kernels are interpreted."""
