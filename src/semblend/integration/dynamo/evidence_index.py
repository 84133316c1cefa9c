"""Donors the workers announced: keyed anchors in, expected reusable tokens per worker out. Bounded, one thread.

About 260 bytes per anchor and 15 per donor token: with the default bound at most 270 MB. A look-up costs the postings
of the request's own anchors, at most ``CROWD`` each. The oldest donor leaves first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract.donor_event import DonorAnnounced
from semblend.fingerprint.anchors import GRAM, WINDOW

CROWD: Final = 32  # postings of one anchor: what everybody holds says little
Worker = tuple[int, int]  # Dynamo's worker id and data-parallel rank
_Owner = tuple[Worker, str]


@dataclass(frozen=True, slots=True)
class _Donor:
    namespace: str
    anchors: list[int]


@dataclass(frozen=True, slots=True)
class Cover:
    """Stretches ``[start, end)`` of a request that donors of one worker hold, ascending and apart."""

    stretches: tuple[tuple[int, int], ...]
    donor_ids: tuple[str, ...]

    def beyond(self, exact_tokens: int) -> int:
        return sum(max(0, end - max(start, exact_tokens)) for start, end in self.stretches)


class EvidenceIndex:
    """Anchors are told apart by namespace through their key: a request can only meet its own tenant's."""

    def __init__(self, *, max_donors: int = 1 << 16, max_anchors: int = 1 << 20) -> None:
        self.dropped = 0  # to stay within bounds
        self._max_donors = max_donors
        self._max_anchors = max_anchors
        self._donors: OrderedDict[_Owner, _Donor] = OrderedDict()
        self._postings: dict[int, list[tuple[_Owner, int]]] = {}
        self._anchors = 0

    def __len__(self) -> int:
        return len(self._donors)

    def add(self, worker: Worker, donor: DonorAnnounced) -> None:
        """A donor of another gram than ours cannot be compared and is left out."""
        owner = (worker, donor.donor_id)
        self.remove(worker, donor.donor_id)
        if donor.gram != GRAM:
            return
        anchors: list[int] = np.frombuffer(donor.anchors, "<u8").tolist()
        if len(anchors) > self._max_anchors:
            self.dropped += 1
            return
        while len(self._donors) >= self._max_donors or self._anchors + len(anchors) > self._max_anchors:
            (oldest_worker, oldest_id) = next(iter(self._donors))
            self.remove(oldest_worker, oldest_id)
            self.dropped += 1
        self._donors[owner] = _Donor(donor.namespace, anchors)
        self._anchors += len(anchors)
        for anchor, position in zip(anchors, np.frombuffer(donor.positions, "<u4").tolist(), strict=True):
            held = self._postings.setdefault(anchor, [])
            held.append((owner, position))
            if len(held) > CROWD:
                del held[0]

    def remove(self, worker: Worker, donor_id: str) -> None:
        donor = self._donors.pop((worker, donor_id), None)
        if donor is None:
            return
        self._anchors -= len(donor.anchors)
        for anchor in set(donor.anchors):
            left = [entry for entry in self._postings.get(anchor, ()) if entry[0] != (worker, donor_id)]
            if left:
                self._postings[anchor] = left
            else:
                self._postings.pop(anchor, None)

    def clear(self, worker: Worker, namespace: str | None = None) -> None:
        gone = [
            owner
            for owner, donor in self._donors.items()
            if owner[0] == worker and namespace in (None, donor.namespace)
        ]
        for owner in gone:
            self.remove(*owner)

    def forget(self, worker_id: int) -> None:
        """Every rank of a worker."""
        for owner in [owner for owner in self._donors if owner[0][0] == worker_id]:
            self.remove(*owner)

    def cover(
        self, anchors: NDArray[np.uint64], positions: NDArray[np.int32], min_run_tokens: int
    ) -> dict[Worker, Cover]:
        """Neighbouring anchors that a donor holds at one distance make a run of equal tokens."""
        found: dict[tuple[_Owner, int], list[int]] = {}
        for anchor, position in zip(anchors.tolist(), positions.tolist(), strict=True):
            for owner, place in self._postings.get(anchor, ()):
                found.setdefault((owner, position - place), []).append(position)
        stretches: dict[Worker, list[tuple[int, int]]] = {}
        donors: dict[Worker, dict[str, None]] = {}
        for (owner, _), places in found.items():
            for start, end in _runs(places):
                if end - start >= min_run_tokens:
                    stretches.setdefault(owner[0], []).append((start, end))
                    donors.setdefault(owner[0], {})[owner[1]] = None
        return {worker: Cover(_joined(parts), tuple(donors[worker])) for worker, parts in stretches.items()}


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Anchors of equal text are at most a window apart; places come in ascending order."""
    runs = [(places[0], places[0] + GRAM)]
    for place in places[1:]:
        start, end = runs[-1]
        if place - (end - GRAM) <= WINDOW:
            runs[-1] = (start, place + GRAM)
        else:
            runs.append((place, place + GRAM))
    return runs


def _joined(parts: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(parts):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)
