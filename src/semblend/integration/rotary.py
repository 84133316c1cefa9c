"""The rotation of each attention layer, read from the loaded model.

A model goes in, candidates per layer come out: the rotary modules around the layer are asked, the nearest first, by
the attributes that vLLM, SGLang and Transformers give such modules. Which candidate a layer really uses, if any, is
not read but measured (``core.rotation_proof``): layers without RoPE have the module, too. Called by the adapters at
start-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import torch

from sembase.errors import SemBlendError
from semblend.kv.rope import Rotation
from semblend.kv.rope_table import rotation_from_table

_TABLES: Final = ("cos_sin_cache", "long_short_cos_sin_cache")
_FREQUENCIES: Final = "inv_freq"
_FREQUENCY_ROUNDING: Final = 1e-6  # of a frequency read from a table


class RotaryModuleError(SemBlendError):
    """A rotary module whose rotation cannot be read."""


def candidate_rotations(
    model: Any, layer_names: Sequence[str], first_dim: int = 0, positions: int | None = None
) -> list[tuple[Rotation, ...]]:
    """For each attention layer, by its name in the model, the rotations its keys may have; none without RoPE.

    ``first_dim`` is where the rotated part of an entry begins: 0, or the size of MLA's latent vector. ``positions`` is
    how many the engine serves: SGLang adds rows beyond them that may follow another rule.
    """
    modules = dict(model.named_modules())
    read: dict[int, tuple[Rotation, ...]] = {}
    found = []
    for name in layer_names:
        around = {id(module): module for module in (*_nearest_rotary(modules, name), *_shared_rotary(modules, name))}
        for module in around.values():
            if id(module) not in read:
                read[id(module)] = rotations_of(module, first_dim, positions)
        found.append(_distinct(rotation for module in around for rotation in read[module]))
    return found


def _distinct(rotations: Iterable[Rotation]) -> tuple[Rotation, ...]:
    """The first of those that differ by rounding only."""
    kept: list[Rotation] = []
    for one in rotations:
        if not any(_differ_by_rounding(one, other) for other in kept):
            kept.append(one)
    return tuple(kept)


def _differ_by_rounding(one: Rotation, other: Rotation) -> bool:
    return (
        (one.interleaved, one.first_dim, one.rotary_dim) == (other.interleaved, other.first_dim, other.rotary_dim)
    ) and torch.allclose(one.inverse_frequencies, other.inverse_frequencies, rtol=_FREQUENCY_ROUNDING, atol=0.0)


def rotations_of(module: Any, first_dim: int = 0, positions: int | None = None) -> tuple[Rotation, ...]:
    """The rotations a rotary module may apply to keys: one, or several where the module does not choose."""
    if hasattr(module, "long_short_cos_sin_cache"):
        return tuple(
            rotation_from_table(table[:positions], interleaved=False, first_dim=first_dim)
            for table in _longrope_tables(module)
        )
    if hasattr(module, "cos_sin_cache"):
        neox = getattr(module, "is_neox_style", None)
        if not isinstance(neox, bool):
            raise RotaryModuleError(f"{type(module).__name__} does not tell how it pairs dimensions")
        return (rotation_from_table(_own_table(module)[:positions], interleaved=not neox, first_dim=first_dim),)
    frequencies = {name: part for name, part in module.named_buffers(recurse=False) if name.endswith(_FREQUENCIES)}
    return tuple(
        Rotation(part.detach().float().cpu(), interleaved, first_dim)
        for name, part in frequencies.items()
        if part.ndim == 1 and not name.startswith("original")
        for interleaved in (False, True)
    )


def _nearest_rotary(modules: Mapping[str, Any], layer_name: str) -> list[Any]:
    """Rotary modules below the closest module around the layer that has any."""
    around = layer_name
    while around:
        around = around.rpartition(".")[0]
        prefix = f"{around}." if around else ""
        found = {id(one): one for name, one in modules.items() if name.startswith(prefix) and _is_rotary(one)}
        if found:
            return list(found.values())
    return []


def _shared_rotary(modules: Mapping[str, Any], layer_name: str) -> list[Any]:
    """Rotary modules next to any module around the layer: some models rotate by a module all layers share, although
    each layer has its own (Gemma 3 in SGLang)."""
    parts = layer_name.split(".")
    around = {".".join(parts[:depth]) for depth in range(len(parts))}
    return [one for name, one in modules.items() if name.rpartition(".")[0] in around and _is_rotary(one)]


def _is_rotary(module: Any) -> bool:
    if any(hasattr(module, name) for name in _TABLES):
        return True
    return any(name.endswith(_FREQUENCIES) for name, _ in module.named_buffers(recurse=False))


def _own_table(module: Any) -> torch.Tensor:
    """The table in fp32, as the module computes it: it is kept in the model's dtype."""
    stored: torch.Tensor = module.cos_sin_cache
    if stored.dtype == torch.float32 or not hasattr(module, "_compute_cos_sin_cache"):
        return stored
    table: torch.Tensor = module._compute_cos_sin_cache()
    return _same_table(module, table, stored)


def _longrope_tables(module: Any) -> list[torch.Tensor]:
    """Two tables, one after another. vLLM decides at start-up which of them is in use; SGLang by the longest position
    in the batch, so that keys of one layer may follow both."""
    stored: torch.Tensor = module.long_short_cos_sin_cache
    first = int(module.original_max_position_embeddings)
    chosen = getattr(module, "use_long_rope", None)
    found = []
    for uses_long in (False, True) if chosen is None else (bool(chosen),):
        own = stored[first:] if uses_long else stored[:first]
        if stored.dtype != torch.float32:
            factors = module.long_factor if uses_long else module.short_factor
            scale = module.long_mscale if uses_long else module.short_mscale
            own = _same_table(module, module._compute_cos_sin_cache(own.shape[0], factors, scale), own)
        found.append(own)
    return found


def _same_table(module: Any, table: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
    """``table``, if its rows are those that are stored. SGLang adds rows to what is stored."""
    rows = torch.linspace(0, min(len(table), len(stored)) - 1, 64).long().unique()
    if table.shape[1:] != stored.shape[1:] or not torch.equal(
        table[rows.to(table.device)].to(stored).cpu(), stored[rows].cpu()
    ):
        raise RotaryModuleError(f"the table of {type(module).__name__} is not the one it computes")
    return table
