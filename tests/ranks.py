"""Ranks of a tensor-parallel group as threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from semblend.integration.core.rank_group import RankGroup

WAIT_S = 300.0  # a rank that does not come is a failed test, not a test that hangs


class RankThreads:
    """Each of ``size`` threads takes its member by ``of``; all of them must call the same methods."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=WAIT_S)
        self._parts: list[torch.Tensor | bool | None] = [None] * size

    def of(self, rank: int) -> RankGroup:
        return _Member(self, rank)

    def exchange(self, rank: int, part: torch.Tensor | bool) -> list[torch.Tensor | bool | None]:
        self._parts[rank] = part
        self._barrier.wait()
        parts = list(self._parts)
        self._barrier.wait()
        return parts


class _Member:
    def __init__(self, group: RankThreads, rank: int) -> None:
        self._group = group
        self._rank = rank

    @property
    def size(self) -> int:
        return self._group.size

    def agree(self, mine: bool) -> bool:
        return all(self._group.exchange(self._rank, mine))

    def gather(self, part: torch.Tensor) -> Sequence[torch.Tensor]:
        return [one for one in self._group.exchange(self._rank, part) if one is not None and not isinstance(one, bool)]
