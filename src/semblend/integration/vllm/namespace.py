"""From vLLM's configuration and request to a namespace: what must be equal before KV may be reused.

The deployment's part is built once per process, the request's part per request. A salt never leaves as plain text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from semblend.contract.namespace import UNKNOWN, Component, Namespace
from semblend.integration.core.namespace import (
    canonical,
    dtype_name,
    model_identity,
    parallel_layout,
    rope_identity,
    tenant_identity,
    text_config,
    tokenizer_identity,
)

_SIZES: Final = ("tensor_parallel_size", "pipeline_parallel_size", "decode_context_parallel_size")


def deployment_namespace(vllm_config: Any, layout_digest: str | None) -> Namespace:
    """Everything but tenant and adapter. ``layout_digest`` is None until the worker has probed its cache: UNKNOWN."""
    model = vllm_config.model_config
    return Namespace(
        tenant=UNKNOWN,
        model=model_identity(
            getattr(model, "model", None),
            quantization=getattr(model, "quantization", None),
            overrides=getattr(model, "hf_overrides", None) or None,
            weights=getattr(model, "model_weights", None) or None,
        ),
        revision=_revision(model),
        tokenizer=tokenizer_identity(
            getattr(model, "tokenizer", None),
            revision=getattr(model, "tokenizer_revision", None),
            mode=getattr(model, "tokenizer_mode", None),
        ),
        dtype=_dtype(model, vllm_config.cache_config),
        kv_layout=UNKNOWN if layout_digest is None else layout_digest,
        block_size=_block_size(vllm_config.cache_config),
        rope=rope_identity(text_config(model), without_rope=None),
        lora=None,
        tp_layout=parallel_layout(vllm_config.parallel_config, _SIZES, without_suffix="_size"),
    )


def request_namespace(base: Namespace, cache_salt: str | None, lora: object | None, *, require_salt: bool) -> Namespace:
    """``base`` for one request: its tenant by the digest of its salt, its adapter by name, id and path."""
    return replace(base, tenant=tenant_identity(cache_salt, require_salt=require_salt), lora=_lora(lora))


def _lora(lora: object | None) -> Component:
    if lora is None:
        return None
    name, number, path = (getattr(lora, key, None) for key in ("lora_name", "lora_int_id", "lora_path"))
    if not isinstance(name, str) or type(number) is not int or not isinstance(path, str) or not path:
        return UNKNOWN
    if getattr(lora, "load_inplace", False):  # the same name, id and path may refer to other weights
        return UNKNOWN
    return canonical({"name": name, "id": number, "path": path})


def _revision(model: Any) -> Component:
    """The requested revision, else the commit the hub resolved; None when there is neither (a local directory)."""
    asked = getattr(model, "revision", UNKNOWN)
    if asked is None:
        asked = getattr(getattr(model, "hf_config", None), "_commit_hash", None)
    return asked if asked is UNKNOWN or asked is None or isinstance(asked, str) else UNKNOWN


def _dtype(model: Any, cache: Any) -> Component:
    own, kept = getattr(model, "dtype", None), getattr(cache, "cache_dtype", None)
    if own is None or kept is None:
        return UNKNOWN
    return f"model={dtype_name(own)},kv={dtype_name(kept)}"


def _block_size(cache: Any) -> Component:
    size = getattr(cache, "block_size", None)
    return size if type(size) is int and size > 0 else UNKNOWN
