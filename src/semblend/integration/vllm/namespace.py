"""From configuration and request to a namespace: what must be equal before KV may move. What cannot be read is UNKNOWN.

The deployment's part is built once per process, the request's part per request. A salt never leaves as plain text.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from semblend.contract.donor_event import tenant_of_salt
from semblend.contract.namespace import UNKNOWN, Component, Namespace
from semblend.integration.identity import canonical, files_digest
from semblend.integration.rotary import rope_parameters


def deployment_namespace(vllm_config: Any, layout_digest: str | None) -> Namespace:
    """Everything but tenant and adapter. ``layout_digest`` is None until the worker has probed its cache: UNKNOWN."""
    model = vllm_config.model_config
    return Namespace(
        tenant=UNKNOWN,
        model=_model(model),
        revision=_revision(model),
        tokenizer=_tokenizer(model),
        dtype=_dtype(model, vllm_config.cache_config),
        kv_layout=UNKNOWN if layout_digest is None else layout_digest,
        block_size=_block_size(vllm_config.cache_config),
        rope=_rope(model),
        lora=None,
        tp_layout=_tp_layout(vllm_config.parallel_config),
    )


def request_namespace(base: Namespace, cache_salt: str | None, lora: object | None, *, require_salt: bool) -> Namespace:
    """``base`` for one request: its tenant by the digest of its salt, its adapter by name, id and path."""
    return replace(base, tenant=_tenant(cache_salt, require_salt), lora=_lora(lora))


def _tenant(cache_salt: str | None, require_salt: bool) -> Component:
    if cache_salt is None and require_salt:
        return UNKNOWN
    return tenant_of_salt(cache_salt)


def announced_names(namespace: Namespace) -> tuple[str | None, str | None]:
    """Tenant and adapter as routers know them: an adapter by its name alone. Only known namespaces are asked."""
    tenant, lora = namespace.tenant, namespace.lora
    assert tenant is None or isinstance(tenant, str)
    return tenant, str(json.loads(lora)["name"]) if isinstance(lora, str) else None


def _lora(lora: object | None) -> Component:
    if lora is None:
        return None
    name, number, path = (getattr(lora, key, None) for key in ("lora_name", "lora_int_id", "lora_path"))
    if not isinstance(name, str) or type(number) is not int or not isinstance(path, str) or not path:
        return UNKNOWN
    if getattr(lora, "load_inplace", False):  # other weights may stand behind the same name, id and path
        return UNKNOWN
    return canonical({"name": name, "id": number, "path": path})


def _model(model: Any) -> Component:
    """The name and, for a local directory, which files it holds: weights changed in place are another model."""
    name = getattr(model, "model", None)
    if not isinstance(name, str) or not name:
        return UNKNOWN
    identity: dict[str, Any] = {
        "name": name,
        "quantization": _text(getattr(model, "quantization", None)),
        "overrides": _text(getattr(model, "hf_overrides", None) or None),
        "weights": _text(getattr(model, "model_weights", None) or None),
    }
    path = Path(name)
    if path.exists():
        digest = files_digest(path)
        if digest is None:
            return UNKNOWN
        identity |= {"path": str(path.resolve()), "files": digest}
    return canonical(identity)


def _revision(model: Any) -> Component:
    """What was asked for, else the commit the hub gave; None says there is neither (a local directory)."""
    asked = getattr(model, "revision", UNKNOWN)
    if asked is None:
        asked = getattr(getattr(model, "hf_config", None), "_commit_hash", None)
    return asked if asked is UNKNOWN or asked is None or isinstance(asked, str) else UNKNOWN


def _tokenizer(model: Any) -> Component:
    name = getattr(model, "tokenizer", None)
    if not isinstance(name, str) or not name:
        return UNKNOWN
    revision, mode = getattr(model, "tokenizer_revision", None), getattr(model, "tokenizer_mode", None)
    return canonical({"name": name, "revision": _text(revision), "mode": _text(mode)})


def _dtype(model: Any, cache: Any) -> Component:
    own, kept = getattr(model, "dtype", None), getattr(cache, "cache_dtype", None)
    if own is None or kept is None:
        return UNKNOWN
    return f"model={str(own).removeprefix('torch.')},kv={str(kept).removeprefix('torch.')}"


def _block_size(cache: Any) -> Component:
    size = getattr(cache, "block_size", None)
    return size if type(size) is int and size > 0 else UNKNOWN


def _rope(model: Any) -> Component:
    hf = getattr(model, "hf_text_config", None) or getattr(model, "hf_config", None)
    if hf is None:
        return UNKNOWN
    parameters = rope_parameters(hf)
    if parameters is None:
        return None
    try:
        return canonical(parameters)
    except (TypeError, ValueError):
        return UNKNOWN


def _tp_layout(parallel: Any) -> Component:
    names = ("tensor_parallel_size", "pipeline_parallel_size", "decode_context_parallel_size")
    sizes = {name: getattr(parallel, name, None) for name in names}
    if any(type(size) is not int for size in sizes.values()):
        return UNKNOWN
    return ",".join(f"{name.removesuffix('_size')}={size}" for name, size in sizes.items())


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
