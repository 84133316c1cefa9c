"""A request's anchors against the postings -> tokens that donors of each replica could spare it, as a compiled loop.

Neighbouring anchors that a donor holds at one distance make a run of equal tokens. A run counts as the connector's own
gates would have it: long enough, and computed in a context that is mostly the request's. An expectation, never a claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from semgate.donors.postings import DONOR, NEXT, POSITION, SLOT, Store, place_of

# Columns of a run.
RUN_SLOT: Final = 0
RUN_START: Final = 1
RUN_END: Final = 2


@dataclass(frozen=True, slots=True)
class ReuseModel:
    """The gates of the connectors, as far as they can be foreseen from anchors; defaults are theirs."""

    min_run_tokens: int = 64
    boundary_tokens: int = 64
    max_context_share: float = 0.35
    min_reuse_ratio: float = 0.10


class Scratch(NamedTuple):
    """One place per donor, valid where ``stamp`` is the look-up's number: its open run, and what it shared before."""

    stamp: NDArray[np.int64]
    last: NDArray[np.int32]  # position of the last anchor of the open run
    start: NDArray[np.int32]
    shift: NDArray[np.int32]
    shared: NDArray[np.int32]
    seen: NDArray[np.int32]  # donors of this look-up, in order of appearance


def new_scratch(max_donors: int) -> Scratch:
    whole = max_donors + 1
    small = [np.zeros(whole, np.int32) for _ in range(5)]
    return Scratch(np.zeros(whole, np.int64), *small)


@kernel
def find_runs(
    store: Store,
    scratch: Scratch,
    number: int,
    keys: NDArray[np.uint64],
    positions: NDArray[np.int32],
    shape: tuple[int, int, float, int],
    runs: NDArray[np.int32],
) -> int:
    """Fills ``runs`` and returns how many. ``shape``: shortest run, boundary, largest context share, gram."""
    count = seen = 0
    gram = shape[3]
    for i in range(len(keys)):
        place = place_of(store, keys[i])
        if not store.used[place]:
            continue
        position = positions[i]
        head = int(store.heads[place])
        post = head
        while post != 0:  # first the runs that go on: a gram may stand twice in a donor
            donor = store.posts[post, DONOR]
            if scratch.stamp[donor] == number and _goes_on(store, scratch, post, position, gram):
                scratch.last[donor] = position
            post = int(store.posts[post, NEXT])
        post = head
        while post != 0:
            donor = store.posts[post, DONOR]
            if scratch.stamp[donor] != number:
                scratch.stamp[donor] = number
                scratch.shared[donor] = 0
                scratch.seen[seen] = donor
                seen += 1
                _begin(store, scratch, post, position)
            elif scratch.last[donor] != position:
                count = _close(store, scratch, donor, shape, runs, count)
                _begin(store, scratch, post, position)
            elif scratch.start[donor] == position:  # begun just now: from its first place in the donor it goes farthest
                scratch.shift[donor] = min(scratch.shift[donor], store.posts[post, POSITION] - position)
            post = int(store.posts[post, NEXT])
    for i in range(seen):
        count = _close(store, scratch, scratch.seen[i], shape, runs, count)
    return count


@kernel_part
def _goes_on(store: Store, scratch: Scratch, post: int, position: int, gram: int) -> bool:
    """Two grams at one distance in both texts, with at most one token between them: anchors are never farther apart."""
    donor = store.posts[post, DONOR]
    is_next = 0 < position - scratch.last[donor] <= gram + 1
    return bool(is_next and store.posts[post, POSITION] - position == scratch.shift[donor])


@kernel_part
def _begin(store: Store, scratch: Scratch, post: int, position: int) -> None:
    donor = store.posts[post, DONOR]
    scratch.start[donor] = position
    scratch.last[donor] = position
    scratch.shift[donor] = store.posts[post, POSITION] - position


@kernel_part
def _close(
    store: Store, scratch: Scratch, donor: int, shape: tuple[int, int, float, int], runs: NDArray[np.int32], count: int
) -> int:
    """Write the open run of ``donor`` down if it would be loaded; what it computes again at its head is left out."""
    least, boundary, most_share, gram = shape
    start = int(scratch.start[donor])
    end = int(scratch.last[donor]) + gram
    length = end - start
    if length < least:
        return count
    before = max(start, start + int(scratch.shift[donor]))
    differing = max(before - int(scratch.shared[donor]), 0)
    scratch.shared[donor] += length
    share = 0.0
    if differing > 0:
        share = min(1.0, differing / length * np.log((before + length) / before))
        start += int(boundary * np.sqrt(differing / before))
    if share <= most_share and start < end and count < len(runs):
        runs[count, RUN_SLOT] = store.donors[donor, SLOT]
        runs[count, RUN_START] = start
        runs[count, RUN_END] = end
        count += 1
    return count


def covered(runs: NDArray[np.int32], exact_tokens: NDArray[np.int32]) -> NDArray[np.int32]:
    """Per slot, the tokens in the union of its runs that its exact prefix does not hold."""
    order = np.lexsort((runs[:, RUN_START], runs[:, RUN_SLOT]))
    total: NDArray[np.int32] = _union(runs[order], exact_tokens)
    return total


@kernel
def _union(runs: NDArray[np.int32], exact_tokens: NDArray[np.int32]) -> NDArray[np.int32]:
    total = np.zeros(len(exact_tokens), np.int32)
    slot = -1
    reached = 0
    for i in range(len(runs)):
        if runs[i, RUN_SLOT] != slot:
            slot = runs[i, RUN_SLOT]
            if slot >= len(exact_tokens):
                break
            reached = exact_tokens[slot]
        total[slot] += max(0, runs[i, RUN_END] - max(reached, runs[i, RUN_START]))
        reached = max(reached, runs[i, RUN_END])
    return total
