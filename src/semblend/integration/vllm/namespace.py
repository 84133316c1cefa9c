"""From configuration and request to a namespace: what must be equal before KV may move. What cannot be read is UNKNOWN.

The deployment's part is built once per process, the request's part per request. A salt never leaves as plain text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from semblend.contract.namespace import UNKNOWN, Component, Namespace
from semblend.integration.vllm.support import rope_parameters

_WEIGHT_SUFFIXES: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")


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
    if cache_salt is None:
        return UNKNOWN if require_salt else None
    return "salt:" + hashlib.sha256(cache_salt.encode("utf-8", "surrogatepass")).hexdigest()


def _lora(lora: object | None) -> Component:
    if lora is None:
        return None
    name, number, path = (getattr(lora, key, None) for key in ("lora_name", "lora_int_id", "lora_path"))
    if not isinstance(name, str) or type(number) is not int or not isinstance(path, str) or not path:
        return UNKNOWN
    if getattr(lora, "load_inplace", False):  # other weights may stand behind the same name, id and path
        return UNKNOWN
    return _canonical({"name": name, "id": number, "path": path})


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
        digest = _files_digest(path)
        if digest is None:
            return UNKNOWN
        identity |= {"path": str(path.resolve()), "files": digest}
    return _canonical(identity)


def _files_digest(path: Path) -> str | None:
    """Configuration bytes, and names, sizes and times of weight files; None when they cannot be read or are missing."""
    hasher = hashlib.sha256()
    try:
        if not path.exists():
            return None
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            if file.name.endswith("config.json"):
                hasher.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
            elif file.name.endswith(_WEIGHT_SUFFIXES):
                status = file.stat()
                hasher.update(f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    except OSError:
        return None
    return hasher.hexdigest()


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
    return _canonical({"name": name, "revision": _text(revision), "mode": _text(mode)})


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
        return _canonical(parameters)
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


def _canonical(record: Mapping[str, Any]) -> str:
    return json.dumps(dict(record), sort_keys=True, separators=(",", ":"), allow_nan=False)
