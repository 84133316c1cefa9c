"""All donors the engines announced, by replica slot: announcements in, expected reusable tokens per slot out.

Called by the subscriber (announcements) and by the router (one look-up per request), on one thread. Bounded in donors
and anchors, the oldest donor leaves first; about 52 bytes per anchor, 3 per donor token, 200 per donor for its names.
A look-up costs the postings of the request's own anchors, at most ``CROWD`` each, whatever the number of donors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError
from semblend.contract.donor_event import DonorAnnounced, anchor_salts, namespace_digest, tenant_of_salt
from semblend.fingerprint.anchors import GRAM, select_anchors
from semblend.fingerprint.keyed import keyed_anchors
from semgate.donors.cover import ReuseModel, covered, find_runs, new_scratch
from semgate.donors.postings import LIVING, NEWER, OLDER, SLOT, link, new_store, unlink

CROWD: Final = 32  # donors remembered per anchor: what everybody holds says little
RUNS: Final = 4096  # noted per look-up
_ENDS: Final = 0


@dataclass(frozen=True, slots=True)
class _Known:
    slot: int
    donor_id: str
    namespace: str


class DonorIndex:
    """``key`` is the one the engines have. Donors are known by slot and id: two engines may use one id."""

    def __init__(
        self,
        key: bytes,
        *,
        max_donors: int = 1 << 16,
        max_anchors: int = 1 << 20,
        model: ReuseModel | None = None,
    ) -> None:
        if not 1 <= max_donors < 1 << 30 or not 1 <= max_anchors < 1 << 30:
            raise ConfigurationError("an index of donors holds between 1 and a billion donors and anchors")
        self.dropped = 0  # to stay within bounds
        self._key = key
        self._max_donors = max_donors
        self._max_anchors = max_anchors
        self._model = model or ReuseModel()
        self._store = new_store(max_anchors, max_donors)
        self._scratch = new_scratch(max_donors)
        self._runs = np.zeros((RUNS, 3), np.int32)
        self._numbers: dict[tuple[int, str], int] = {}
        self._known: list[_Known | None] = [None]
        self._free: list[int] = []
        self._lookups = 0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def anchors(self) -> int:
        return int(self._store.state[LIVING])

    def donors(self, slot: int) -> list[str]:
        return [donor_id for at, donor_id in self._numbers if at == slot]

    def add(self, slot: int, donor: DonorAnnounced) -> None:
        """Make a donor known, in place of one of the same id. One that is larger than the whole index is left out."""
        self.remove(slot, donor.donor_id)
        keys = np.frombuffer(donor.anchors, "<u8").astype(np.uint64)
        positions = np.frombuffer(donor.positions, "<u4").astype(np.int32)
        if len(keys) > self._max_anchors or donor.gram != GRAM:
            self.dropped += 1
            return
        while len(self) >= self._max_donors or self.anchors + len(keys) > self._max_anchors:
            oldest = self._known[int(self._store.donors[_ENDS, NEWER])]
            assert oldest is not None
            self.remove(oldest.slot, oldest.donor_id)
            self.dropped += 1
        number = self._free.pop() if self._free else len(self._known)
        if number == len(self._known):
            self._known.append(None)
        self._known[number] = _Known(slot, donor.donor_id, donor.namespace)
        self._numbers[slot, donor.donor_id] = number
        self._store.donors[number, SLOT] = slot
        self._put_newest(number)
        link(self._store, number, keys, positions, CROWD)

    def remove(self, slot: int, donor_id: str) -> bool:
        number = self._numbers.pop((slot, donor_id), None)
        if number is None:
            return False
        unlink(self._store, number)
        donors = self._store.donors
        newer, older = int(donors[number, NEWER]), int(donors[number, OLDER])
        donors[older, NEWER] = newer
        donors[newer, OLDER] = older
        self._known[number] = None
        self._free.append(number)
        return True

    def clear(self, slot: int, namespace: str | None = None) -> int:
        """Forget the donors of a replica, or those of one namespace there; how many there were."""
        gone = [
            known.donor_id
            for known in self._known
            if known is not None and known.slot == slot and namespace in (None, known.namespace)
        ]
        for donor_id in gone:
            self.remove(slot, donor_id)
        return len(gone)

    def expected(
        self, tokens: NDArray[np.uint32], salt: str | None, lora: str | None, exact_tokens: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Tokens beyond its exact prefix that each slot's donors could spare this request."""
        nothing = np.zeros(len(exact_tokens), np.int32)
        if not self._numbers:
            return nothing
        positions, hashes = select_anchors(tokens)
        if not len(positions):
            return nothing
        namespace = namespace_digest(self._key, tenant_of_salt(salt), lora)
        keys = keyed_anchors(hashes, anchor_salts(self._key, namespace))
        self._lookups += 1
        model = self._model
        shape = (model.min_run_tokens, model.boundary_tokens, model.max_context_share, GRAM)
        count = find_runs(self._store, self._scratch, self._lookups, keys, positions, shape, self._runs)
        if not count:
            return nothing
        total = covered(self._runs[:count], exact_tokens)
        total[total < model.min_reuse_ratio * (len(tokens) - exact_tokens)] = 0
        return total

    def _put_newest(self, number: int) -> None:
        donors = self._store.donors
        newest = int(donors[_ENDS, OLDER])
        donors[number, OLDER] = newest
        donors[number, NEWER] = _ENDS
        donors[newest, NEWER] = number
        donors[_ENDS, OLDER] = number
