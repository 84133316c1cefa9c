"""From SGLang's configuration and request to a namespace: what must be equal before KV may be reused."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from semblend.contract.namespace import UNKNOWN, Namespace
from semblend.integration.core.namespace import (
    dtype_name,
    model_identity,
    parallel_layout,
    rope_identity,
    tenant_identity,
    text_config,
    text_of,
    tokenizer_identity,
)


@dataclass(frozen=True, slots=True)
class TreeTenant:
    """What separates tenants in the engine's tree and in its page hashes."""

    extra_key: str | None = None
    cache_salt: str | None = None


def deployment_namespace(server_args: Any, model_config: Any, *, kv_layout: str, kv_dtype: str, page: int) -> Namespace:
    """Everything but tenant and adapter."""
    model = getattr(server_args, "model_path", None)
    return Namespace(
        tenant=UNKNOWN,
        model=model_identity(
            model,
            quantization=getattr(model_config, "quantization", None),
            overrides=getattr(server_args, "json_model_override_args", None),
        ),
        revision=text_of(getattr(server_args, "revision", None)),
        tokenizer=tokenizer_identity(
            getattr(server_args, "tokenizer_path", None) or model, mode=getattr(server_args, "tokenizer_mode", None)
        ),
        dtype=f"model={dtype_name(getattr(model_config, 'dtype', None))},kv={kv_dtype}",
        kv_layout=kv_layout,
        block_size=page,
        rope=rope_identity(text_config(model_config), without_rope=None),
        lora=None,
        tp_layout=parallel_layout(server_args, ("tp_size", "pp_size", "dp_size")),
    )


def request_namespace(
    base: Namespace, cache_salt: str | None, extra_key: str | None, *, require_salt: bool
) -> Namespace:
    """``base`` for one request. Salt and extra key separate tenants in the radix tree, so they do in the index."""
    tenant = tenant_identity(cache_salt, require_salt=require_salt)
    if extra_key is not None and tenant is not UNKNOWN:
        digest = hashlib.sha256(extra_key.encode("utf-8", "surrogatepass")).hexdigest()
        tenant = f"{tenant or 'none'}|extra:{digest}"
    return replace(base, tenant=tenant)
