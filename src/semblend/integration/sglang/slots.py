"""KV from slots to slots inside the engine's own pool: V as it is, K turned to its new positions, layer by layer."""

from __future__ import annotations

from typing import Any

import torch

from semblend.kv.rope import Rotation, rotate_keys


class SlotCopier:
    """Works on the plain pool of one tensor per layer and side, ``[slot, head, dim]``, which ``support`` checked."""

    def __init__(self, pool: Any, rotation: Rotation) -> None:
        self._keys: list[torch.Tensor] = list(pool.k_buffer)
        self._values: list[torch.Tensor] = list(pool.v_buffer)
        self._rotation = rotation

    def copy(self, donor_slots: torch.Tensor, own_slots: torch.Tensor, shift: int) -> None:
        """``shift``: by how many positions the tokens stand further back in the recipient."""
        if donor_slots.shape != own_slots.shape:
            raise ValueError(f"{len(donor_slots)} slots to read, {len(own_slots)} to write")
        for keys, values in zip(self._keys, self._values, strict=True):
            turned = rotate_keys(keys.index_select(0, donor_slots), shift, self._rotation)
            keys.index_copy_(0, own_slots, turned)
            values.index_copy_(0, own_slots, values.index_select(0, donor_slots))
