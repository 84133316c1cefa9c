"""Donor K and V in host memory, one store per worker; the scheduler half decides what comes and goes.

A token takes layers x 2 x heads x head_dim x bytes per element: 23,040 bytes for 30 layers of 3 heads of 64 in bf16.
MLA takes half of that, because a token has one entry instead of K and V.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from semblend.kv.donor_store import KVShape, StoreError, check_look_up


@dataclass(slots=True)
class _Entry:
    declared_tokens: int
    declared_bytes: int
    kv: torch.Tensor
    written: torch.Tensor | None  # [layers, tokens] until the donor is committed


class HostStore:
    """The ``DonorStore`` named ``host``: one tensor [layers, sides, tokens, heads, dim] per donor, read as views.

    ``max_bytes`` is a ceiling, not a policy: the scheduler half evicts in time, and ``begin`` refuses when it did not.
    """

    def __init__(self, shape: KVShape, max_bytes: int | None = None) -> None:
        self._shape = shape
        self._layers, self._heads, self._head_dim, self._dtype = shape.layers, shape.heads, shape.head_dim, shape.dtype
        self._max_bytes = max_bytes
        self._entries: dict[str, _Entry] = {}
        self._bytes_held = 0
        self.bytes_per_token = shape.bytes_per_token

    @property
    def bytes_held(self) -> int:
        """Bytes of all donors, begun or committed."""
        return self._bytes_held

    def contains(self, donor_ids: Sequence[str]) -> list[bool]:
        check_look_up(donor_ids)
        entries = [self._entries.get(donor_id) for donor_id in donor_ids]
        return [entry is not None and entry.written is None for entry in entries]

    def begin(self, donor_id: str, tokens: int) -> None:
        if tokens <= 0:
            raise StoreError(f"donor {donor_id}: cannot store {tokens} tokens")
        needed = tokens * self.bytes_per_token
        replaced = self._entries.get(donor_id)
        held_after = self._bytes_held + needed - (replaced.declared_bytes if replaced else 0)
        if self._max_bytes is not None and held_after > self._max_bytes:
            raise StoreError(f"donor {donor_id}: {held_after} bytes would exceed the ceiling of {self._max_bytes}")
        self.drop(donor_id)
        with torch.inference_mode(False):  # tensors made in inference mode could not be written outside of it
            # NumPy asks the kernel for huge pages, torch.empty does not: half of the time of the first write.
            size = (self._layers, self._shape.sides, tokens, self._heads, self._head_dim)
            kv = torch.from_numpy(np.empty(needed, np.uint8)).view(self._dtype).view(size)
            written = torch.zeros((self._layers, tokens), dtype=torch.bool, device="cpu")
        self._entries[donor_id] = _Entry(tokens, needed, kv, written)
        self._bytes_held += needed

    def write(self, donor_id: str, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        entry, written = self._unwritten(donor_id)
        length = keys.shape[0]
        expected = (length, self._heads, self._head_dim)
        if keys.shape != expected or values.shape != (length, self._heads, self._shape.value_dim):
            raise StoreError(f"donor {donor_id}: K {tuple(keys.shape)} and V {tuple(values.shape)}, not {expected}")
        if keys.dtype != self._dtype or values.dtype != self._dtype:
            raise StoreError(f"donor {donor_id}: K {keys.dtype} and V {values.dtype}, not {self._dtype}")
        if not 0 <= layer < self._layers:
            raise StoreError(f"donor {donor_id}: no layer {layer}; the store has {self._layers}")
        self._check_range(donor_id, entry, start, length)
        entry.kv[layer, 0, start : start + length].copy_(keys)
        if self._shape.has_values:
            entry.kv[layer, 1, start : start + length].copy_(values)
        written[layer, start : start + length] = True

    def memory(self, donor_id: str) -> torch.Tensor:
        entry, _ = self._unwritten(donor_id)
        return entry.kv

    def filled(self, donor_id: str) -> None:
        _, written = self._unwritten(donor_id)
        written.fill_(True)

    def commit(self, donor_id: str) -> None:
        entry = self._entry(donor_id)
        if entry.written is None:
            return
        if not bool(entry.written.all()):
            complete = int(entry.written.all(dim=0).sum())
            raise StoreError(
                f"donor {donor_id}: only {complete} of {entry.declared_tokens} tokens are written in every layer"
            )
        entry.written = None

    def read(self, donor_id: str, start: int, length: int) -> torch.Tensor:
        entry = self._entry(donor_id)
        if entry.written is not None:
            raise StoreError(f"donor {donor_id} is not committed")
        self._check_range(donor_id, entry, start, length)
        return entry.kv[:, :, start : start + length]

    def drop(self, donor_id: str) -> bool:
        entry = self._entries.pop(donor_id, None)
        if entry is None:
            return False
        self._bytes_held -= entry.declared_bytes
        return True

    def _unwritten(self, donor_id: str) -> tuple[_Entry, torch.Tensor]:
        """A donor that is not committed, and which of its positions are written."""
        entry = self._entry(donor_id)
        if (written := entry.written) is None:
            raise StoreError(f"donor {donor_id} is committed and can no longer be written")
        return entry, written

    def _entry(self, donor_id: str) -> _Entry:
        entry = self._entries.get(donor_id)
        if entry is None:
            raise StoreError(f"donor {donor_id} is not stored")
        return entry

    def _check_range(self, donor_id: str, entry: _Entry, start: int, length: int) -> None:
        if entry.kv.shape[2] < entry.declared_tokens:
            raise StoreError(f"donor {donor_id} is truncated: {entry.kv.shape[2]} of {entry.declared_tokens} tokens")
        if start < 0 or length <= 0 or start + length > entry.declared_tokens:
            raise StoreError(
                f"donor {donor_id}: [{start}, {start + length}) is outside its {entry.declared_tokens} tokens"
            )
