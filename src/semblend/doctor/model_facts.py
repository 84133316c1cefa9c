"""Facts about a model from its configuration: what it is, how it rotates keys, how it attends.

A description for the reader of a report, never a verdict: what is refused is decided by the adapters alone.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError

_HUB_NAME: Final = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(:\S+)?")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    path: str
    architecture: str
    layers: int | None
    rope: str
    attention: str


def read_model(path: str) -> ModelFacts | None:
    """From the folder's ``config.json``; None if ``path`` is not a folder, such as the name of a model on a hub."""
    require_model(path)
    folder = Path(path)
    if not folder.is_dir():
        return None
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"{folder} has no config.json; name the folder of a model") from None
    except ValueError as error:
        raise ConfigurationError(f"{file} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ConfigurationError(f"{file} is not a JSON object")
    return describe(path, config)


def require_model(path: str) -> None:
    """Refuse what is neither here nor a name that a hub may know: ``MODEL``, ``OWNER/MODEL`` or a URL."""
    if not (_HUB_NAME.fullmatch(path) or "://" in path or Path(path).exists()):
        raise ConfigurationError(f"there is no folder '{path}', and it is not the name of a model on a hub")


def describe(path: str, config: Mapping[str, Any]) -> ModelFacts:
    """``config``: the content of ``config.json``, or the same from an engine's configuration."""
    nested = config.get("text_config")
    text: Mapping[str, Any] = nested if isinstance(nested, Mapping) else config
    names = config.get("architectures") or text.get("architectures") or ()
    layers = text.get("num_hidden_layers")
    return ModelFacts(
        path=path,
        architecture=", ".join(map(str, names)) or f"unknown (model_type {config.get('model_type')})",
        layers=layers if isinstance(layers, int) else None,
        rope=_rope(text),
        attention=_attention(text),
    )


def _rope(text: Mapping[str, Any]) -> str:
    """As newer configurations keep it (``rope_parameters``), or from the two older keys."""
    parameters = text.get("rope_parameters")
    if not isinstance(parameters, Mapping) or not parameters:
        scaling, theta = text.get("rope_scaling"), text.get("rope_theta")
        parameters = dict(scaling) if isinstance(scaling, Mapping) else {}
        if theta is not None:
            parameters.setdefault("rope_theta", theta)
    if not parameters:
        return "none declared"
    by_kind = {name: value for name, value in parameters.items() if isinstance(value, Mapping)}
    if by_kind:
        return "; ".join(f"{name}: {_one_rope(value)}" for name, value in sorted(by_kind.items()))
    return _one_rope(parameters)


def _one_rope(parameters: Mapping[str, Any]) -> str:
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    parts = [str(kind)]
    for name in ("rope_theta", "factor", "partial_rotary_factor", "mrope_section"):
        if (value := parameters.get(name)) is not None:
            parts.append(f"{name} {value:g}" if isinstance(value, int | float) else f"{name} {value}")
    return ", ".join(parts)


def _attention(text: Mapping[str, Any]) -> str:
    """MLA, or the kinds of layers and how many of each, or full attention."""
    if text.get("kv_lora_rank"):
        return f"MLA (latent {text['kv_lora_rank']}, rope part {text.get('qk_rope_head_dim')})"
    kinds = text.get("layer_types")
    window = text.get("sliding_window")
    if isinstance(kinds, list) and kinds:
        counted = ", ".join(f"{count} x {kind}" for kind, count in sorted(Counter(map(str, kinds)).items()))
        return f"{counted} (window {window})" if window and "sliding" in counted else counted
    if window and text.get("use_sliding_window", True):
        return f"sliding window of {window}"
    heads, kv_heads = text.get("num_attention_heads"), text.get("num_key_value_heads")
    return f"full, {heads} query heads, {kv_heads or heads} KV heads" if heads else "unknown"
