"""Never run in TensorRT-LLM: what donor and recipient must share. Unknown parts decline.

The engine's arguments and requests go in as they are; attributes are read by name and missing ones become ``UNKNOWN``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from semblend.contract.namespace import UNKNOWN, Component, Namespace
from semblend.integration.core.namespace import (
    canonical,
    model_identity,
    parallel_layout,
    rope_identity,
    tenant_identity,
    text_of,
)

_SIZES: Final = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
_MISSING: Final = object()


def deployment_namespace(llm_args: Any) -> Namespace:
    """Everything but tenant and adapter."""
    cache = getattr(llm_args, "kv_cache_config", None)
    return Namespace(
        tenant=UNKNOWN,
        model=model_identity(getattr(llm_args, "model", None), quantization=getattr(llm_args, "quant_config", None)),
        revision=text_of(getattr(llm_args, "revision", None)),
        tokenizer=canonical(
            {
                "name": text_of(getattr(llm_args, "tokenizer", None) or getattr(llm_args, "model", None)),
                "mode": text_of(getattr(llm_args, "tokenizer_mode", None)),
            }
        ),
        dtype=f"model={text_of(getattr(llm_args, 'dtype', None))},kv={text_of(getattr(cache, 'dtype', None))}",
        kv_layout="pages of this engine",
        block_size=_block_tokens(cache) or UNKNOWN,
        rope=_rope(llm_args),
        lora=UNKNOWN,
        tp_layout=parallel_layout(llm_args, _SIZES),
    )


def request_namespace(base: Namespace, request: Any, *, require_salt: bool) -> Namespace:
    """``base`` for one request. An engine version without salt or adapter attributes leaves them unknown."""
    salt, adapter = getattr(request, "cache_salt", _MISSING), getattr(request, "lora_task_id", _MISSING)
    is_salt = salt is None or isinstance(salt, str)
    is_adapter = adapter is None or type(adapter) is int
    return replace(
        base,
        tenant=tenant_identity(salt, require_salt=require_salt) if is_salt else UNKNOWN,  # type: ignore[arg-type]
        lora=adapter if is_adapter else UNKNOWN,  # type: ignore[arg-type]
    )


def _block_tokens(cache: Any) -> int | None:
    size = getattr(cache, "tokens_per_block", None)
    return size if type(size) is int and size > 0 else None


def _rope(llm_args: Any) -> Component:
    """From the checkpoint's own configuration: the arguments do not carry it, and a name alone says nothing."""
    try:
        config = json.loads((Path(str(getattr(llm_args, "model", ""))) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return UNKNOWN
    return rope_identity(SimpleNamespace(**config)) if isinstance(config, dict) else UNKNOWN
