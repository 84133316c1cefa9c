"""Start vLLM in this process, without a connector: the benchmarks call the connector's worker half themselves."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

STEP_TOKENS = 8192


def start(model: Path, dtype: str = "auto") -> Any:
    vllm: Any = import_module("vllm")  # its entry point is not part of the surface our stubs describe
    return vllm.LLM(
        model=str(model),
        dtype=dtype,
        enforce_eager=True,
        disable_hybrid_kv_cache_manager=True,  # windowed layers keep every token, as our worker has them do
        max_num_batched_tokens=STEP_TOKENS,
        disable_log_stats=True,
    )
