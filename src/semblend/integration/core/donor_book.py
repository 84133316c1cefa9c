"""Which donors have KV here, how many bytes they hold, and which is evicted first. The tensors are elsewhere."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from semblend.contract import Namespace


@dataclass(frozen=True, slots=True)
class Donor:
    """``tokens`` of KV under ``namespace``, ``kv_bytes`` in every worker."""

    donor_id: str
    tokens: int
    namespace: Namespace
    kv_bytes: int


class DonorBook:
    """Stored donors by last use, and room reserved for those being captured. Never exceeds the budget."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._stored: OrderedDict[str, Donor] = OrderedDict()
        self._reserved: dict[str, Donor] = {}
        self._bytes = 0
        self._reserved_bytes = 0

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, donor_id: str) -> bool:
        return donor_id in self._stored

    @property
    def bytes_held(self) -> int:
        """Bytes per worker of what is stored and what is reserved."""
        return self._bytes

    def tokens_of(self, donor_id: str) -> int | None:
        donor = self._stored.get(donor_id)
        return None if donor is None else donor.tokens

    def reserve(self, donor: Donor) -> list[Donor] | None:
        """Make room: the donors evicted for it, or ``None`` when even an empty store is too small."""
        if donor.kv_bytes + self._reserved_bytes > self._budget:
            return None
        gone: list[Donor] = []
        while self._bytes + donor.kv_bytes > self._budget:
            _, oldest = self._stored.popitem(last=False)
            self._bytes -= oldest.kv_bytes
            gone.append(oldest)
        self._reserved[donor.donor_id] = donor
        self._bytes += donor.kv_bytes
        self._reserved_bytes += donor.kv_bytes
        return gone

    def store(self, donor_id: str) -> Donor | None:
        """The KV of a reserved donor is complete. ``None`` when its reservation was cancelled in the meantime."""
        donor = self._reserved.pop(donor_id, None)
        if donor is not None:
            self._reserved_bytes -= donor.kv_bytes
            self._stored[donor_id] = donor
        return donor

    def touch(self, donor_id: str) -> None:
        if donor_id in self._stored:
            self._stored.move_to_end(donor_id)

    def remove(self, donor_id: str) -> Donor | None:
        """Give up a donor, stored or reserved."""
        donor = self._stored.pop(donor_id, None)
        if donor is None and (donor := self._reserved.pop(donor_id, None)) is not None:
            self._reserved_bytes -= donor.kv_bytes
        if donor is not None:
            self._bytes -= donor.kv_bytes
        return donor

    def ids(self) -> list[str]:
        return [*self._stored, *self._reserved]
