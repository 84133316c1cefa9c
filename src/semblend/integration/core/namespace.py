"""The parts of a namespace that every adapter reads in the same way: model, tokenizer, RoPE, parallel layout, tenant.

The adapters' ``namespace`` modules name the engine's attributes; what cannot be read is ``UNKNOWN`` and declines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from semblend.contract.donor_event import tenant_of_salt
from semblend.contract.model_folder import CONFIG_SUFFIX, model_files
from semblend.contract.namespace import UNKNOWN, Component, Namespace
from semblend.integration.rope_config import rope_parameters


def model_identity(name: object, **facts: object) -> Component:
    """The model's name and, for a local folder, which files it holds: weights changed in place are another model."""
    if not isinstance(name, str | Path) or not str(name):
        return UNKNOWN
    identity: dict[str, Any] = {"name": str(name)} | {fact: text_of(value) for fact, value in facts.items()}
    path = Path(name)
    if path.exists():
        digest = files_digest(path)
        if digest is None:
            return UNKNOWN
        identity |= {"path": str(path.resolve()), "files": digest}
    return canonical(identity)


def tokenizer_identity(name: object, **facts: object) -> Component:
    if not isinstance(name, str) or not name:
        return UNKNOWN
    return canonical({"name": name} | {fact: text_of(value) for fact, value in facts.items()})


def rope_identity(hf_config: Any, *, without_rope: Component = UNKNOWN) -> Component:
    """``without_rope`` is the component of a model that declares none."""
    if hf_config is None:
        return UNKNOWN
    parameters = rope_parameters(hf_config)
    if parameters is None:
        return without_rope
    try:
        return canonical(parameters)
    except (TypeError, ValueError):
        return UNKNOWN


def parallel_layout(source: Any, names: Sequence[str], *, without_suffix: str = "") -> Component:
    """The sizes named ``names``, all of which must be known."""
    sizes = {name: getattr(source, name, None) for name in names}
    if any(type(size) is not int for size in sizes.values()):
        return UNKNOWN
    return ",".join(f"{name.removesuffix(without_suffix)}={size}" for name, size in sizes.items())


def tenant_identity(cache_salt: str | None, *, require_salt: bool) -> Component:
    """The tenant by the digest of its salt: a salt never leaves as plain text."""
    return UNKNOWN if cache_salt is None and require_salt else tenant_of_salt(cache_salt)


def announced_names(namespace: Namespace) -> tuple[str | None, str | None]:
    """Tenant and adapter as routers know them: an adapter by its name alone. Of known namespaces only."""
    tenant, lora = namespace.tenant, namespace.lora
    assert tenant is None or isinstance(tenant, str), "donors have a known namespace"
    return tenant, str(json.loads(lora)["name"]) if isinstance(lora, str) else None


def text_config(model_config: Any) -> Any:
    """The Hugging Face configuration of the text model, or None."""
    return getattr(model_config, "hf_text_config", None) or getattr(model_config, "hf_config", None)


def dtype_name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def text_of(value: object) -> str | None:
    return None if value is None else str(value)


def files_digest(path: Path) -> str | None:
    """Of configuration bytes, and names, sizes and times of weight files; None if they are missing or unreadable."""
    hasher = hashlib.sha256()
    try:
        if not path.exists():
            return None
        for file in model_files(path):
            if file.name.endswith(CONFIG_SUFFIX):
                hasher.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
            else:
                status = file.stat()
                hasher.update(f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    except OSError:
        return None
    return hasher.hexdigest()


def canonical(record: Mapping[str, Any]) -> str:
    """One spelling for equal records."""
    return json.dumps(dict(record), sort_keys=True, separators=(",", ":"), allow_nan=False)
