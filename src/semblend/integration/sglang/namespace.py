"""From SGLang's configuration and request to a namespace: what must be equal before KV may move."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from semblend.contract.donor_event import tenant_of_salt
from semblend.contract.namespace import UNKNOWN, Component, Namespace
from semblend.integration.identity import canonical, files_digest
from semblend.integration.rotary import rope_parameters


def deployment_namespace(server_args: Any, model_config: Any, *, kv_layout: str, kv_dtype: str, page: int) -> Namespace:
    """Everything but tenant and adapter."""
    return Namespace(
        tenant=UNKNOWN,
        model=_model(server_args, model_config),
        revision=_text(getattr(server_args, "revision", None)),
        tokenizer=_tokenizer(server_args),
        dtype=f"model={_name(getattr(model_config, 'dtype', None))},kv={kv_dtype}",
        kv_layout=kv_layout,
        block_size=page,
        rope=_rope(model_config),
        lora=None,
        tp_layout=_layout(server_args),
    )


def request_namespace(
    base: Namespace, cache_salt: str | None, extra_key: str | None, *, require_salt: bool
) -> Namespace:
    """``base`` for one request. Salt and extra key part the radix tree, so they part the index in the same way."""
    if cache_salt is None and require_salt:
        return replace(base, tenant=UNKNOWN)
    tenant = tenant_of_salt(cache_salt)
    if extra_key is not None:
        digest = hashlib.sha256(extra_key.encode("utf-8", "surrogatepass")).hexdigest()
        tenant = f"{tenant or 'none'}|extra:{digest}"
    return replace(base, tenant=tenant)


def _model(server_args: Any, model_config: Any) -> Component:
    name = getattr(server_args, "model_path", None)
    if not isinstance(name, str) or not name:
        return UNKNOWN
    identity: dict[str, Any] = {
        "name": name,
        "quantization": _text(getattr(model_config, "quantization", None)),
        "overrides": _text(getattr(server_args, "json_model_override_args", None)),
    }
    path = Path(name)
    if path.exists():
        digest = files_digest(path)
        if digest is None:
            return UNKNOWN
        identity |= {"path": str(path.resolve()), "files": digest}
    return canonical(identity)


def _tokenizer(server_args: Any) -> Component:
    name = getattr(server_args, "tokenizer_path", None) or getattr(server_args, "model_path", None)
    if not isinstance(name, str) or not name:
        return UNKNOWN
    return canonical({"name": name, "mode": _text(getattr(server_args, "tokenizer_mode", None))})


def _rope(model_config: Any) -> Component:
    hf = getattr(model_config, "hf_text_config", None) or getattr(model_config, "hf_config", None)
    parameters = rope_parameters(hf) if hf is not None else None
    if parameters is None:
        return UNKNOWN
    try:
        return canonical(parameters)
    except (TypeError, ValueError):
        return UNKNOWN


def _layout(server_args: Any) -> Component:
    sizes = {name: getattr(server_args, name, None) for name in ("tp_size", "pp_size", "dp_size")}
    if any(type(size) is not int for size in sizes.values()):
        return UNKNOWN
    return ",".join(f"{name}={size}" for name, size in sizes.items())


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
