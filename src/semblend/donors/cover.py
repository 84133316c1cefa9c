"""A request's anchors against the postings -> tokens that donors of each replica could save it, as a compiled loop.

Neighbouring anchors that a donor holds at one distance form a run of equal tokens. A run counts if the gates of the
replica's connector would load it (``semblend.plan.gates``). The result is an expectation, never a claim.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from semblend.donors.postings import DONOR, NEXT, POSITION, SLOT, Store, place_of
from semblend.fingerprint.anchors import GRAM
from semblend.plan.gates import Gates

# Columns of a run.
RUN_SLOT: Final = 0
RUN_START: Final = 1
RUN_END: Final = 2
RUN_DONOR: Final = 3
RUN_COLUMNS: Final = 4

# Columns of ``limits``: a replica's gates, as far as they can be predicted from anchors.
MIN_RUN: Final = 0
MIN_FRAGMENT: Final = 1
BOUNDARY: Final = 2
MULTIPLE: Final = 3
MAX_SHARE: Final = 4
MIN_RATIO: Final = 5
MIN_PROMPT: Final = 6
MIN_MOVED: Final = 7
MIN_INEXACT: Final = 8  # of all expected tokens: anchors do not show that a context is the same from 0 on


def limits_of(gates: Gates) -> tuple[float, ...]:
    """The row of ``limits`` for these gates."""
    return (
        gates.min_run_tokens,
        gates.min_fragment_tokens,
        gates.boundary_recompute_tokens,
        gates.boundary_multiple_tokens,
        gates.max_context_share,
        gates.min_reuse_ratio,
        gates.min_prompt_tokens,
        gates.min_moved_tokens,
        gates.min_inexact_tokens,
    )


class Scratch(NamedTuple):
    """One entry per donor, valid where ``stamp`` is the look-up's number: its open run, and what it shared before."""

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
    limits: NDArray[np.float64],
    runs: NDArray[np.int32],
) -> int:
    """Fill ``runs`` and return their number. Donors of slots beyond ``limits`` are left out."""
    count = seen = 0
    for i in range(len(keys)):
        place = place_of(store, keys[i])
        if not store.used[place]:
            continue
        position = positions[i]
        head = int(store.heads[place])
        post = head
        while post != 0:  # first extend open runs: a gram may occur twice in a donor
            donor = store.posts[post, DONOR]
            if scratch.stamp[donor] == number and _extends(store, scratch, post, position):
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
                count = _close(store, scratch, donor, limits, runs, count)
                _begin(store, scratch, post, position)
            elif scratch.start[donor] == position:  # just begun: the first occurrence in the donor reaches farthest
                scratch.shift[donor] = min(scratch.shift[donor], store.posts[post, POSITION] - position)
            post = int(store.posts[post, NEXT])
    for i in range(seen):
        count = _close(store, scratch, scratch.seen[i], limits, runs, count)
    return count


@kernel_part
def _extends(store: Store, scratch: Scratch, post: int, position: int) -> bool:
    """Two grams at one distance in both texts, at most one token apart, as neighbouring anchors are."""
    donor = store.posts[post, DONOR]
    is_next = 0 < position - scratch.last[donor] <= GRAM + 1
    return bool(is_next and store.posts[post, POSITION] - position == scratch.shift[donor])


@kernel_part
def _begin(store: Store, scratch: Scratch, post: int, position: int) -> None:
    donor = store.posts[post, DONOR]
    scratch.start[donor] = position
    scratch.last[donor] = position
    scratch.shift[donor] = store.posts[post, POSITION] - position


@kernel_part
def _close(
    store: Store, scratch: Scratch, donor: int, limits: NDArray[np.float64], runs: NDArray[np.int32], count: int
) -> int:
    """Append the open run of ``donor``, trimmed as ``semblend.plan.gates`` does, if the gates would load it."""
    slot = int(store.donors[donor, SLOT])
    start = int(scratch.start[donor])
    end = int(scratch.last[donor]) + GRAM
    if slot >= len(limits) or end - start < limits[slot, MIN_RUN]:
        return count
    preceding = max(start, start + int(scratch.shift[donor]))
    differing = max(preceding - int(scratch.shared[donor]), 0)
    scratch.shared[donor] += end - start
    skip = 0
    if differing > 0:
        skip = int(np.ceil(limits[slot, BOUNDARY] * np.sqrt(differing / preceding)))
    multiple = int(limits[slot, MULTIPLE])
    skip += -(start + skip) % multiple
    surplus = end % multiple
    length = end - start - skip - surplus
    if length < 1 or ((skip > 0 or surplus > 0) and length < limits[slot, MIN_FRAGMENT]):
        return count
    share = 0.0
    if differing > 0:
        share = min(1.0, differing / length * np.log((preceding + skip + length) / (preceding + skip)))
    is_allowed = share <= limits[slot, MAX_SHARE] or 0 < limits[slot, MIN_MOVED] <= length
    if is_allowed and count < len(runs):
        runs[count, RUN_SLOT] = slot
        runs[count, RUN_START] = start + skip
        runs[count, RUN_END] = start + skip + length
        runs[count, RUN_DONOR] = donor
        count += 1
    return count


def covered(runs: NDArray[np.int32], exact_tokens: NDArray[np.int32]) -> NDArray[np.int32]:
    """Per slot, the tokens in the union of its runs that its exact prefix does not hold."""
    order = np.lexsort((runs[:, RUN_START], runs[:, RUN_SLOT]))
    total: NDArray[np.int32] = _union(runs[order], exact_tokens)
    return total


def covered_by_all(runs: NDArray[np.int32], exact_tokens: NDArray[np.int32]) -> NDArray[np.int32]:
    """Per slot, the tokens in the union of all runs, whichever slot has them, that its exact prefix does not hold."""
    order = np.argsort(runs[:, RUN_START], kind="stable")
    ends = np.maximum.accumulate(runs[order, RUN_END])
    starts = np.minimum(np.maximum(runs[order, RUN_START], np.append(0, ends[:-1])), ends)  # disjoint, ascending
    beyond = np.append(np.cumsum((ends - starts)[::-1])[::-1], 0)  # tokens from each part on
    first = np.searchsorted(ends, exact_tokens, side="right")  # the part that an exact prefix ends in or before
    overlap = np.maximum(exact_tokens - np.append(starts, ends[-1])[first], 0)
    total: NDArray[np.int32] = np.where(first < len(ends), beyond[first] - overlap, 0).astype(np.int32)
    return total


@kernel
def _union(runs: NDArray[np.int32], exact_tokens: NDArray[np.int32]) -> NDArray[np.int32]:
    total = np.zeros(len(exact_tokens), np.int32)
    slot = -1
    reached = 0
    for i in range(len(runs)):
        if runs[i, RUN_SLOT] != slot:
            slot = runs[i, RUN_SLOT]
            reached = exact_tokens[slot]
        total[slot] += max(0, runs[i, RUN_END] - max(reached, runs[i, RUN_START]))
        reached = max(reached, runs[i, RUN_END])
    return total
