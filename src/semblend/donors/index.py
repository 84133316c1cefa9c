"""All donors the engines announced, by replica slot: announcements in, expected reusable tokens per slot out.

Fed by ``DonorSink``; queried once per request by the router and by Dynamo's evidence provider, on one thread. Bounded
in donors and anchors, the oldest donor is dropped first; about 52 bytes per anchor, 3 per donor token, 200 per donor
for its names. A look-up costs the postings of the request's own anchors, at most ``CROWD`` each, however many donors
exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache, partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError
from semblend.contract.donor_event import DonorAnnounced, Tier, anchor_salts, namespace_digest, tenant_of_salt
from semblend.donors.cover import (
    MIN_INEXACT,
    MIN_PROMPT,
    MIN_RATIO,
    RUN_COLUMNS,
    RUN_DONOR,
    RUN_SLOT,
    covered,
    covered_by_all,
    find_runs,
    limits_of,
    new_scratch,
)
from semblend.donors.postings import LIVING, NEWER, OLDER, SLOT, link, new_store, unlink
from semblend.fingerprint.anchors import GRAM, select_anchors
from semblend.fingerprint.keyed import keyed_anchors
from semblend.plan.gates import ADAPTER_GATES, Gates

CROWD: Final = 32  # donors kept per anchor: text that every donor holds tells replicas apart no better
RUNS: Final = 4096  # noted per look-up
NAMESPACES_REMEMBERED: Final = 4096
SHARED_TIER: Final = "storage"
_ENDS: Final = 0


def announced_gates(announced: Mapping[str, int | float]) -> Gates:
    """The gates of a ``GatesAnnounced`` event, or ``ConfigurationError``. Names this version lacks are ignored."""
    values = {field.name: announced[field.name] for field in fields(Gates) if field.name in announced}
    if any(name.endswith("_tokens") and not isinstance(value, int) for name, value in values.items()):
        raise ConfigurationError("gates counted in tokens must be whole numbers")
    return replace(ADAPTER_GATES, **values)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Known:
    slot: int
    donor_id: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Expected:
    """``tokens`` beyond its exact prefix that each slot's donors could save; ``donor_ids`` of the slots with any.

    ``slots_with_runs`` names the slots with donors of this content, also where a gate refuses the total.
    """

    tokens: NDArray[np.int32]
    donor_ids: Mapping[int, tuple[str, ...]]
    slots_with_runs: frozenset[int]


class Usable(NamedTuple):
    """``tokens`` beyond its exact prefix that each slot's donors could save; ``fetchable``: that the donors of any slot
    could save it which are in a store that all replicas read. None if there are none."""

    tokens: NDArray[np.int32]
    fetchable: NDArray[np.int32] | None


class DonorIndex:
    """``key`` is shared with the engines. Donors are identified by slot and id: two engines may use the same id.

    ``gates`` is the fallback for replicas that announce none: publishers older than ``GatesAnnounced``.
    """

    def __init__(
        self,
        key: bytes,
        *,
        max_donors: int = 1 << 16,
        max_anchors: int = 1 << 20,
        gates: Gates = ADAPTER_GATES,
    ) -> None:
        if not 1 <= max_donors < 1 << 30 or not 1 <= max_anchors < 1 << 30:
            raise ConfigurationError("max_donors and max_anchors must be at least 1 and below 2^30")
        self.dropped = 0  # to stay within bounds
        self._max_donors = max_donors
        self._max_anchors = max_anchors
        self._digest = lru_cache(NAMESPACES_REMEMBERED)(partial(namespace_digest, key))
        self._salts = lru_cache(NAMESPACES_REMEMBERED)(partial(anchor_salts, key))
        self._fallback = gates
        self._gates: dict[int, Gates] = {}
        self._limits = np.empty((0, len(limits_of(gates))))
        self._store = new_store(max_anchors, max_donors)
        self._scratch = new_scratch(max_donors)
        self._runs = np.zeros((RUNS, RUN_COLUMNS), np.int32)
        self._numbers: dict[tuple[int, str], int] = {}
        self._known: list[_Known | None] = [None]
        self._is_shared = np.zeros(max_donors + 1, np.bool_)  # by number: in a store that all replicas read
        self._free: list[int] = []
        self._lookups = 0

    @staticmethod
    @cache
    def warm_up() -> None:
        """Compile the loops now (seconds once per installation), so that no request waits for the compiler."""
        key = bytes(32)
        index = DonorIndex(key, max_donors=4, max_anchors=1 << 12)
        tokens = np.arange(2_048, dtype=np.uint32)
        namespace = namespace_digest(key, tenant_of_salt(None), None)
        positions, hashes = select_anchors(tokens)
        anchors = keyed_anchors(hashes, anchor_salts(key, namespace))
        packed = (anchors.astype("<u8").tobytes(), positions.astype("<u4").tobytes())
        index.add(0, DonorAnnounced("warm-up", namespace, len(tokens), GRAM, *packed))
        index.expected(tokens, None, None, np.zeros(1, np.int32))
        index.clear(0)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def anchors(self) -> int:
        return int(self._store.state[LIVING])

    def donors(self, slot: int) -> list[str]:
        return [donor_id for at, donor_id in self._numbers if at == slot]

    def add(self, slot: int, donor: DonorAnnounced) -> None:
        """Add a donor, replacing one of the same id. A donor larger than the whole index is left out and counted."""
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
        self._is_shared[number] = donor.tier == SHARED_TIER
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

    def relocate(self, slot: int, donor_id: str, tier: Tier) -> None:
        number = self._numbers.get((slot, donor_id))
        if number is not None:
            self._is_shared[number] = tier == SHARED_TIER

    def clear(self, slot: int, namespace: str | None = None) -> int:
        """Drop the donors of a replica, or only those of one namespace there; returns how many."""
        gone = [
            known.donor_id
            for known in self._known
            if known is not None and known.slot == slot and namespace in (None, known.namespace)
        ]
        for donor_id in gone:
            self.remove(slot, donor_id)
        return len(gone)

    def gates(self, slot: int) -> Gates:
        """The gates a replica's connector announced, or the fallback."""
        return self._gates.get(slot, self._fallback)

    def set_gates(self, slot: int, gates: Gates) -> None:
        self._reserve(slot + 1)
        self._gates[slot] = gates
        self._limits[slot] = limits_of(gates)

    def forget(self, slot: int) -> None:
        """Drop the donors and the gates of a replica."""
        self.clear(slot)
        if self._gates.pop(slot, None) is not None:
            self._limits[slot] = limits_of(self._fallback)

    def expected(
        self, tokens: NDArray[np.uint32], salt: str | None, lora: str | None, exact_tokens: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Tokens beyond its exact prefix that each slot's donors could save this request."""
        return self._look_up(tokens, salt, lora, exact_tokens)[0]

    def usable(
        self,
        tokens: NDArray[np.uint32],
        salt: str | None,
        lora: str | None,
        exact_tokens: NDArray[np.int32],
        distrusted: Collection[int] = (),
    ) -> Usable:
        """As ``expected``, with what replicas can fetch. Slots that are ``distrusted`` offer nothing to others."""
        total, runs = self._look_up(tokens, salt, lora, exact_tokens)
        shared = runs[self._is_shared[runs[:, RUN_DONOR]]]
        if distrusted:
            shared = shared[~np.isin(shared[:, RUN_SLOT], list(distrusted))]
        if not len(shared):
            return Usable(total, None)
        return Usable(total, self._accepted(covered_by_all(shared, exact_tokens), len(tokens), exact_tokens))

    def evidence(
        self, tokens: NDArray[np.uint32], salt: str | None, lora: str | None, exact_tokens: NDArray[np.int32]
    ) -> Expected:
        """As ``expected``, with the donors by name."""
        total, runs = self._look_up(tokens, salt, lora, exact_tokens)
        donor_ids: dict[int, dict[str, None]] = {}
        for row in runs.tolist():
            donor = self._known[row[RUN_DONOR]]
            assert donor is not None
            donor_ids.setdefault(row[RUN_SLOT], {})[donor.donor_id] = None
        return Expected(
            total, {slot: tuple(ids) for slot, ids in donor_ids.items() if total[slot]}, frozenset(donor_ids)
        )

    def _look_up(
        self, tokens: NDArray[np.uint32], salt: str | None, lora: str | None, exact_tokens: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Tokens by slot, and the runs they come from."""
        nothing = np.zeros(len(exact_tokens), np.int32), self._runs[:0]
        if not self._numbers:
            return nothing
        positions, hashes = select_anchors(tokens)
        if not len(positions):
            return nothing
        namespace = self._digest(tenant_of_salt(salt), lora)
        keys = keyed_anchors(hashes, self._salts(namespace))
        self._lookups += 1
        self._reserve(len(exact_tokens))
        limits = self._limits[: len(exact_tokens)]
        count = find_runs(self._store, self._scratch, self._lookups, keys, positions, limits, self._runs)
        if not count:
            return nothing
        runs = self._runs[:count]
        return self._accepted(covered(runs, exact_tokens), len(tokens), exact_tokens), runs

    def _accepted(
        self, total: NDArray[np.int32], prompt_tokens: int, exact_tokens: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """0 where the gates of a slot refuse the total."""
        limits = self._limits[: len(exact_tokens)]
        is_refused = total < np.maximum(limits[:, MIN_RATIO] * (prompt_tokens - exact_tokens), limits[:, MIN_INEXACT])
        total[is_refused | (prompt_tokens < limits[:, MIN_PROMPT])] = 0
        return total

    def _reserve(self, slots: int) -> None:
        missing = slots - len(self._limits)
        if missing > 0:
            row = np.array(limits_of(self._fallback))
            self._limits = np.vstack([self._limits, np.tile(row, (missing, 1))])

    def _put_newest(self, number: int) -> None:
        donors = self._store.donors
        newest = int(donors[_ENDS, OLDER])
        donors[number, OLDER] = newest
        donors[number, NEWER] = _ENDS
        donors[newest, NEWER] = number
        donors[_ENDS, OLDER] = number
