"""The ranks of a tensor-parallel group: each holds some of the heads, and all must reach the same decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import torch


class RankGroup(Protocol):
    """All ranks call the same methods in the same order, or the group waits for ever."""

    @property
    def size(self) -> int: ...

    def agree(self, mine: bool) -> bool:
        """True when every rank says True."""

    def gather(self, part: torch.Tensor) -> Sequence[torch.Tensor]:
        """The tensor of every rank, on the host, in the order of ranks. All have the same shape and dtype.

        Sums taken over the list are the same bit for bit on every rank, which an all-reduce does not promise.
        """


class _Alone:
    size: Final = 1

    def agree(self, mine: bool) -> bool:
        return mine

    def gather(self, part: torch.Tensor) -> Sequence[torch.Tensor]:
        return (part.cpu(),)


ALONE: Final[RankGroup] = _Alone()
