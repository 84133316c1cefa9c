"""What position-independent reuse could add to a prefix cache: repeats of at least N tokens, wherever they stand.

In: token rows in time order; out: counts under an infinite cache, an upper limit of what any system could reuse. A
token counts where it lies in a window of N tokens that an earlier request of the same tenant held, token by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from sembase.errors import ConfigurationError

_BASE: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)
MAX_TOKENS: Final = 2**30


@dataclass(frozen=True, slots=True)
class AnyPositionReuse:
    """Token counts under an infinite cache. ``either`` is the union of prefix and any-position reuse."""

    prompt_tokens: int
    prefix_tokens: int
    either_tokens: int
    min_repeat_tokens: int
    block_tokens: int
    per_request_prefix_tokens: NDArray[np.int64]
    per_request_either_tokens: NDArray[np.int64]

    @property
    def prefix_share(self) -> float | None:
        return self.prefix_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def either_share(self) -> float | None:
        return self.either_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def added_tokens(self) -> int:
        """What reuse at any position adds beyond the prefix."""
        return self.either_tokens - self.prefix_tokens


def any_position_reuse(
    rows: Sequence[NDArray[np.int32]],
    *,
    tenants: Sequence[int] | None = None,
    min_repeat_tokens: int = 64,
    block_tokens: int = 16,
) -> AnyPositionReuse:
    """One pass with a rolling hash; every hash match is proved on the tokens. About 33 bytes a token."""
    if min_repeat_tokens < 1 or block_tokens < 1:
        raise ConfigurationError("min_repeat_tokens and block_tokens must be at least 1")
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    if offsets[-1] > MAX_TOKENS:
        raise ConfigurationError(f"{offsets[-1]} tokens are more than {MAX_TOKENS}; take a window of the trace")
    owner = np.asarray(tenants if tenants is not None else np.zeros(len(rows)), dtype=np.int64)
    prefix, either = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for tenant in np.unique(owner):  # tenants share nothing, so each is a trace of its own
        own = np.flatnonzero(owner == tenant)
        tokens = np.concatenate([rows[number] for number in own.tolist()]).astype(np.int32)
        own_offsets = np.concatenate([[0], np.cumsum(np.diff(offsets)[own])])
        prefix[own] = _covered_prefix(tokens, own_offsets, block_tokens)
        either[own] = _covered_anywhere(tokens, own_offsets, min_repeat_tokens, prefix[own])
    return AnyPositionReuse(
        prompt_tokens=int(offsets[-1]),
        prefix_tokens=int(prefix.sum()),
        either_tokens=int(either.sum()),
        min_repeat_tokens=min_repeat_tokens,
        block_tokens=block_tokens,
        per_request_prefix_tokens=prefix,
        per_request_either_tokens=either,
    )


def _covered_prefix(tokens: NDArray[np.int32], offsets: NDArray[np.int64], block_tokens: int) -> NDArray[np.int64]:
    """Tokens of whole blocks that an earlier request had behind the same prefix."""
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
    """The slot of the window that equals the one at ``start``, else the free slot where it belongs.

    ``guess`` is the place where the window before this one was found, plus one: there one token proves the rest.
    """
    mask = slots.size - 1
    slot = np.int64(keys[start] & np.uint64(mask))
    while slots[slot] >= 0:
        place = slots[slot]
        if keys[place] == keys[start]:
            first = window - 1 if place == guess else 0
            same = True
            for step in range(first, window):
                if tokens[place + step] != tokens[start + step]:
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
    """Row by row: look every window up among the earlier rows' windows, then add the row's own new ones."""
    for row in range(offsets.size - 1):
        first, stop = offsets[row], offsets[row + 1]
        rolling = np.uint64(0)
        marked = first + prefix[row]  # everything in front of here is counted
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
            place = slots[_slot_of(tokens, slots, keys, start, window, guess)]
            is_new[start] = place < 0
            guess = place + 1 if place >= 0 else -1
            if place >= 0 and end + 1 > marked:
                count += end + 1 - max(start, marked)
                marked = end + 1
        covered[row] = count
        for start in range(first, stop - window + 1):
            if is_new[start]:
                slot = _slot_of(tokens, slots, keys, start, window, -1)
                if slots[slot] < 0:
                    slots[slot] = start
