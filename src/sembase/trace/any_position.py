"""What position-independent reuse could add to a prefix cache: repeats of at least N tokens at any position.

In: a trace file, records, or token rows in time order. Out: counts under an infinite cache, an upper bound on what any
system could reuse. A token counts if it is in a window of N tokens that an earlier request of the same tenant had,
compared token by token. Records need their text: digests show which blocks repeat, not which tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from sembase.errors import ConfigurationError, ContractError
from sembase.tokenizer import Tokenizer, open_tokenizer
from sembase.trace.build import Names
from sembase.trace.formats.agent_text import token_rows
from sembase.trace.load import read_records, sniff_format
from sembase.trace.record import TraceRecord

_BASE: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)
MAX_TOKENS: Final = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """Tokens that reuse at any position adds to the prefix."""
        return self.either_tokens - self.prefix_tokens


def what_if_any_position(
    path: Path | str,
    *,
    min_repeat_tokens: int = 64,
    block_tokens: int = 16,
    tokenizer: Tokenizer | None = None,
    format: str | None = None,
) -> AnyPositionReuse:
    """Under an infinite cache: what an exact prefix cache hits, and what repeats of N tokens at any position add."""
    file = Path(path)
    name = format or sniff_format(file)
    if name == "agent_text":
        rows = token_rows(file, tokenizer)
        return any_position_reuse(rows, min_repeat_tokens=min_repeat_tokens, block_tokens=block_tokens)
    return any_position_reuse_of(
        read_records(file, name), min_repeat_tokens=min_repeat_tokens, block_tokens=block_tokens, tokenizer=tokenizer
    )


def any_position_reuse_of(
    records: Iterable[TraceRecord],
    *,
    min_repeat_tokens: int = 64,
    block_tokens: int = 16,
    tokenizer: Tokenizer | None = None,
) -> AnyPositionReuse:
    encoder = tokenizer or open_tokenizer(None, counted_ids=True)
    tenants = Names()
    rows: list[NDArray[np.int32]] = []
    owners: list[int] = []
    for record in records:
        rows.append(encoder.ids("".join(_texts(record))))
        owners.append(tenants.id_of(record.tenant_id))
    return any_position_reuse(rows, tenants=owners, min_repeat_tokens=min_repeat_tokens, block_tokens=block_tokens)


def _texts(record: TraceRecord) -> list[str]:
    texts = [block.text for block in record.blocks if block.text is not None]
    if len(texts) != len(record.blocks):
        raise ContractError(
            f"request {record.request_id}: a block has no text; any-position reuse needs the text of the prompts"
        )
    return texts


def any_position_reuse(
    rows: Sequence[NDArray[np.int32]],
    *,
    tenants: Sequence[int] | None = None,
    min_repeat_tokens: int = 64,
    block_tokens: int = 16,
) -> AnyPositionReuse:
    """One pass with a rolling hash; every hash match is verified on the tokens. About 33 bytes per token."""
    if min_repeat_tokens < 1 or block_tokens < 1:
        raise ConfigurationError("min_repeat_tokens and block_tokens must be at least 1")
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    if offsets[-1] > MAX_TOKENS:
        raise ConfigurationError(f"{offsets[-1]} tokens exceed the maximum of {MAX_TOKENS}; use a window of the trace")
    owner = np.asarray(tenants if tenants is not None else np.zeros(len(rows)), dtype=np.int64)
    prefix, either = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for tenant in np.unique(owner):  # tenants share nothing: count each one separately
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
