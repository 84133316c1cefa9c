"""The exact count that the reuse counter estimates: every window of N tokens, compared token by token, in memory.

In: token rows in time order; out: per request the tokens of whole blocks that an earlier request of the same tenant had
after the same prefix, and their union with all tokens in a window of N tokens that an earlier request had anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part

_BASE: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)


class ExactReuse(NamedTuple):
    prefix: NDArray[np.int64]
    either: NDArray[np.int64]


def exact_reuse(
    rows: Sequence[NDArray[np.integer]],
    *,
    tenants: Sequence[int] | None = None,
    min_repeat_tokens: int = 64,
    block_tokens: int = 16,
) -> ExactReuse:
    """One pass with a rolling hash; every hash match is verified on the tokens. About 33 bytes per token."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    owner = np.asarray(tenants if tenants is not None else np.zeros(len(rows)), dtype=np.int64)
    prefix, either = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for tenant in np.unique(owner):  # tenants share nothing: count each one separately
        own = np.flatnonzero(owner == tenant)
        tokens = np.concatenate([rows[number] for number in own.tolist()]).astype(np.int32)
        own_offsets = np.concatenate([[0], np.cumsum(np.diff(offsets)[own])])
        prefix[own] = _covered_prefix(tokens, own_offsets, block_tokens)
        either[own] = _covered_anywhere(tokens, own_offsets, min_repeat_tokens, prefix[own])
    return ExactReuse(prefix, either)


def _covered_prefix(tokens: NDArray[np.int32], offsets: NDArray[np.int64], block_tokens: int) -> NDArray[np.int64]:
    """Tokens of whole blocks that an earlier request had after the same prefix."""
    known: dict[tuple[int, bytes], int] = {}
    covered = np.zeros(len(offsets) - 1, np.int64)
    for row in range(len(covered)):
        parent, hitting = -1, True
        for start in range(int(offsets[row]), int(offsets[row + 1]) - block_tokens + 1, block_tokens):
            key = (parent, tokens[start : start + block_tokens].tobytes())
            hitting = hitting and key in known
            covered[row] += block_tokens if hitting else 0
            parent = known.setdefault(key, len(known))
    return covered


def _covered_anywhere(
    tokens: NDArray[np.int32], offsets: NDArray[np.int64], window: int, prefix: NDArray[np.int64]
) -> NDArray[np.int64]:
    slots = np.full(max(16, 1 << int(2 * len(tokens)).bit_length()), -1, np.int32)
    keys = np.zeros(len(tokens), np.uint64)
    is_new = np.zeros(len(tokens), np.bool_)
    covered = np.zeros(len(offsets) - 1, np.int64)
    top = np.uint64(pow(int(_BASE), window - 1, 2**64))
    _mark_repeats(tokens, offsets, window, prefix, slots, keys, is_new, top, covered)
    return covered


@kernel_part
def _slot_of(
    tokens: NDArray[np.int32], slots: NDArray[np.int32], keys: NDArray[np.uint64], start: int, window: int, guess: int
) -> np.int64:
    """The slot of a window equal to the one at ``start``, or the free slot where it belongs.

    ``guess`` is one past the match of the previous window: at that position only the last token must be compared.
    """
    mask = slots.size - 1
    slot = np.int64(keys[start] & np.uint64(mask))
    while slots[slot] >= 0:
        candidate = slots[slot]
        if keys[candidate] == keys[start]:
            first = window - 1 if candidate == guess else 0
            same = True
            for step in range(first, window):
                if tokens[candidate + step] != tokens[start + step]:
                    same = False
                    break
            if same:
                return slot
        slot = (slot + 1) & mask
    return slot


@kernel
def _mark_repeats(
    tokens: NDArray[np.int32],
    offsets: NDArray[np.int64],
    window: int,
    prefix: NDArray[np.int64],
    slots: NDArray[np.int32],
    keys: NDArray[np.uint64],
    is_new: NDArray[np.bool_],
    top: np.uint64,
    covered: NDArray[np.int64],
) -> None:
    """Row by row: look up every window among those of earlier rows, then add the new windows of this row."""
    for row in range(offsets.size - 1):
        first, stop = offsets[row], offsets[row + 1]
        rolling = np.uint64(0)
        marked = first + prefix[row]  # everything before this position is counted
        count = prefix[row]
        guess = -1
        for end in range(first, stop):
            start = end - window + 1
            if start > first:
                rolling = rolling - np.uint64(tokens[start - 1] + 1) * top
            rolling = rolling * _BASE + np.uint64(tokens[end] + 1)
            if start < first:
                continue
            keys[start] = (rolling ^ (rolling >> _HALF)) * _MIX
            keys[start] ^= keys[start] >> _HALF
            match = slots[_slot_of(tokens, slots, keys, start, window, guess)]
            is_new[start] = match < 0
            guess = match + 1 if match >= 0 else -1
            if match >= 0 and end + 1 > marked:
                count += end + 1 - max(start, marked)
                marked = end + 1
        covered[row] = count
        for start in range(first, stop - window + 1):
            if is_new[start]:
                slot = _slot_of(tokens, slots, keys, start, window, -1)
                if slots[slot] < 0:
                    slots[slot] = start
