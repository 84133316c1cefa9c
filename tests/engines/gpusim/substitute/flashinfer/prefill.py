"""Imported by the engine, not called on the simulated GPU."""

from __future__ import annotations

from typing import Any


def trtllm_batch_context_with_kv_cache(*_: Any, **__: Any) -> None:
    raise NotImplementedError("the engine uses it on compute capability 10 only")
