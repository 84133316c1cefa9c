"""Where a worker keeps donor KV: the protocol every store obeys, and the one place a store is chosen by name.

A donor goes in position by position (``begin``, ``write``, ``commit``), or is filled in place, and comes out by range
(``read``). Workers know this protocol only. ``host`` keeps donors in the worker's own memory; shared and
device-resident stores are further names here. Every call costs time by its own tokens or ids, never by the number of
stored donors: a store may hold 10^8 of them on behalf of thousands of workers.
``tests/conformance/test_donor_stores.py`` holds each store to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from sembase.errors import SemBlendError
from sembase.registry import Registry

if TYPE_CHECKING:
    import torch

HOST: Final = "host"
MAX_LOOK_UP: Final = 1024  # ids per call of ``contains``


class StoreError(SemBlendError, LookupError):
    """A donor is missing, incomplete, shorter than declared, or would not fit; or a call exceeds its bound."""


@dataclass(frozen=True, slots=True)
class KVShape:
    """The KV of one token on one rank. MLA keeps one entry per token and layer instead of K and V: it is the key."""

    layers: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    has_values: bool = True

    @property
    def sides(self) -> int:
        return 2 if self.has_values else 1

    @property
    def value_dim(self) -> int:
        return self.head_dim if self.has_values else 0

    @property
    def bytes_per_token(self) -> int:
        return self.layers * self.sides * self.heads * self.head_dim * int(self.dtype.itemsize)


def keys_and_values(kv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of what ``DonorStore.read`` gave; V of no width where there is only K."""
    return kv[:, 0], kv[:, 1] if kv.shape[1] > 1 else kv[:, 0, ..., :0]


class DonorStore(Protocol):
    """K and V of donors by donor id. A donor is readable once every position of every layer was written and it is
    committed; from then on it never changes. A call that fails raises ``StoreError`` and changes nothing.

    One thread begins, commits, reads and drops donors; each donor may be written by a thread of its own."""

    @property
    def bytes_per_token(self) -> int: ...

    @property
    def bytes_held(self) -> int:
        """Bytes this worker holds, of donors begun or committed."""

    def begin(self, donor_id: str, tokens: int) -> None:
        """Reserve room for a donor; replaces one with the same id. ``StoreError`` if it does not fit."""

    def write(self, donor_id: str, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Copy K and V, ``[n, heads, head_dim]`` each, to positions ``start .. start + n`` of one layer, in any order.
        Where there is no V its last size is 0.

        Other shapes or dtypes raise ``StoreError``. The tensors may be overwritten after the call.
        """

    def memory(self, donor_id: str) -> torch.Tensor:
        """``[layers, sides, tokens, heads, head_dim]`` of a donor that was begun, to be filled instead of ``write``.

        It is host memory. What it holds at first is undefined; it may be filled even after a ``drop``.
        """

    def filled(self, donor_id: str) -> None:
        """Every position of the donor's ``memory`` was filled."""

    def commit(self, donor_id: str) -> None:
        """Make a completely written donor readable. Committing twice changes nothing."""

    def read(self, donor_id: str, start: int, length: int) -> torch.Tensor:
        """``[layers, sides, length, heads, head_dim]`` of a committed donor: K, and V where there is one.

        The tensor stays valid after a ``drop``.
        """

    def drop(self, donor_id: str) -> bool:
        """Remove a donor, begun or committed; False if there was none."""

    def contains(self, donor_ids: Sequence[str]) -> list[bool]:
        """For each id whether it is committed here, in one look-up of at most ``MAX_LOOK_UP`` ids."""


OpenStore = Callable[[KVShape, int | None], DonorStore]
STORES: Final[Registry[OpenStore]] = Registry("donor store")
STORES.register(HOST, "semblend.kv.host_store:HostStore")


def open_donor_store(shape: KVShape, max_bytes: int | None, name: str = HOST) -> DonorStore:
    """The store of one worker. ``max_bytes`` is its ceiling; with None only the scheduler half bounds it."""
    return STORES.get(name)(shape, max_bytes)


def check_look_up(donor_ids: Sequence[str]) -> None:
    if len(donor_ids) > MAX_LOOK_UP:
        raise StoreError(f"{len(donor_ids)} donors in one look-up; at most {MAX_LOOK_UP}")
