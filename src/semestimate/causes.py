"""Why a prompt does not continue the one before it: two prompts as blocks in, the cause of the prefix break out.

With text all causes can be distinguished. Digests of whole blocks (a redacted record) hide what changed inside a block:
a changed date, other tools and an edited instruction are all ``HEAD_CHANGED``. Ids of prefixes also hide what follows
the break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.labels import label_index
from sembase.trace.record import VisibleReuse


class Cause(StrEnum):
    """``IN_HEAD`` and ``IN_HISTORY`` are all that ids of prefixes can tell, ``HEAD_CHANGED`` what digests can."""

    DATE_OR_ID = "date or id changed"
    TOOLS_REORDERED = "tools reordered"
    TOOLS_CHANGED = "tools added or removed"
    SYSTEM_CHANGED = "system prompt changed"
    HISTORY_COMPACTED = "history compacted"
    HISTORY_EDITED = "history edited"
    DOCUMENT_ORDER = "other document order"
    NEW_INSTRUCTION = "new instruction, old document"
    HEAD_CHANGED = "head changed (cause hidden)"
    IN_HEAD = "in the tools or system prompt"
    IN_HISTORY = "in the conversation"


_SYSTEM: Final = label_index("system")
_HEADS: Final = tuple(map(label_index, ("system", "template")))
_TURNS: Final = tuple(map(label_index, ("assistant", "tool_output")))  # only a conversation has these
_COMPACTED: Final = 2.0  # removed tokens over those in their place, from which history was compacted rather than edited


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt as breaks see it. ``grew``: it continued an earlier one, so it is a turn of a conversation."""

    keys: NDArray[np.uint64]
    tokens: NDArray[np.int32]
    labels: NDArray[np.uint8]
    shapes: NDArray[np.uint64] | None
    contents: NDArray[np.uint64]  # like keys, but white space around a block does not count where there is text
    tools: Mapping[int, tuple[int, ...]]
    shows: VisibleReuse
    grew: bool = False

    @property
    def prompt_tokens(self) -> int:
        return int(self.tokens.sum())

    @property
    def is_conversation(self) -> bool:
        return self.grew or bool(np.isin(self.labels, _TURNS).any())


@dataclass(frozen=True, slots=True)
class Break:
    """``recoverable_tokens`` a prefix cache would serve if the cheapest change to the prompt were made."""

    cause: Cause
    recoverable_tokens: int = 0


def common_blocks(first: Prompt, second: Prompt) -> int:
    """Blocks that both prompts begin with."""
    size = min(len(first.keys), len(second.keys))
    differ = np.flatnonzero((first.keys[:size] != second.keys[:size]) | (first.tokens[:size] != second.tokens[:size]))
    return int(differ[0]) if len(differ) else size


def recurring_tokens(before: Prompt, after: Prompt, common: int) -> int:
    """Tokens of the blocks after the common ones whose content ``before`` has there too, at any position."""
    known = set(before.contents[common:].tolist())
    there = zip(after.contents[common:].tolist(), after.tokens[common:].tolist(), strict=True)
    return sum(tokens for content, tokens in there if content in known)


def cause_of(before: Prompt, after: Prompt, common: int) -> Break | None:
    """None if ``after`` is simply another prompt: nothing that follows the break in ``before`` recurs in it."""
    if after.shows == "prefix":
        in_head = common < len(before.labels) and before.labels[common] in _HEADS
        return Break(Cause.IN_HEAD if in_head else Cause.IN_HISTORY)
    if common == len(after.keys):
        return Break(Cause.HISTORY_COMPACTED)  # cut off: what is left is served whole
    if found := _in_the_tools(before, after, common) or _in_a_value(before, after, common):
        return found
    places = {key: at for at, key in enumerate(before.contents[common:].tolist(), common)}
    recurring = [at for at, key in enumerate(after.contents[common:].tolist(), common) if key in places]
    if not recurring:
        return _without_recurrence(before, after, common)
    # What occurs twice in a prompt says nothing about order.
    often = Counter(before.contents.tolist()) | Counter(after.contents.tolist())
    once = [at for at in recurring if often[int(after.contents[at])] == 1]
    came_from = [places[key] for key in after.contents[once].tolist()]
    if any(later < earlier for earlier, later in pairwise(came_from)):
        return Break(Cause.DOCUMENT_ORDER, _recurring_from(after, recurring, common))
    is_conversation = before.is_conversation or after.is_conversation
    heads = np.isin((before.labels[common], after.labels[common]), _HEADS).any()
    if after.shapes is None and (heads or not is_conversation):
        return Break(Cause.HEAD_CHANGED, int(after.tokens[recurring].sum()))
    if is_conversation:
        if _SYSTEM in (before.labels[common], after.labels[common]):
            return Break(Cause.SYSTEM_CHANGED)
        removed, put = places[int(after.contents[recurring[0]])] - common, recurring[0] - common
        return Break(_history(int(before.tokens[common:][:removed].sum()), int(after.tokens[common:][:put].sum())))
    return Break(Cause.NEW_INSTRUCTION, int(after.tokens[recurring].sum()))


def _in_the_tools(before: Prompt, after: Prompt, common: int) -> Break | None:
    old, new = before.tools.get(common), after.tools.get(common)
    if old is None and new is None:
        return None
    if old is None or new is None or sorted(old) != sorted(new):
        return Break(Cause.TOOLS_CHANGED)
    return Break(Cause.TOOLS_REORDERED, int(after.tokens[common]) + _equal_after(before, after, common + 1))


def _in_a_value(before: Prompt, after: Prompt, common: int) -> Break | None:
    """The first block that differs has the same shape: only numbers, dates or ids changed."""
    if before.shapes is None or after.shapes is None or common >= len(before.shapes):
        return None
    if before.shapes[common] != after.shapes[common]:
        return None
    return Break(Cause.DATE_OR_ID, _equal_after(before, after, common))


def _equal_after(before: Prompt, after: Prompt, start: int) -> int:
    """Tokens of the blocks from ``start`` on that are equal, up to the first that differs in more than a value."""
    size = min(len(before.keys), len(after.keys))
    equal = before.keys[start:size] == after.keys[start:size]
    continues = equal
    if before.shapes is not None and after.shapes is not None:
        continues = equal | (before.shapes[start:size] == after.shapes[start:size])
    stops = np.flatnonzero(~continues)
    length = int(stops[0]) if len(stops) else len(equal)
    return int(after.tokens[start : start + length][equal[:length]].sum())


def _without_recurrence(before: Prompt, after: Prompt, common: int) -> Break | None:
    if common == 0 or common >= len(before.keys):
        return None
    if _SYSTEM in (before.labels[common], after.labels[common]) and before.is_conversation:
        return Break(Cause.IN_HEAD if after.shapes is None else Cause.SYSTEM_CHANGED)
    if not before.is_conversation or not np.isin(before.labels[common:], _TURNS).any():
        return None
    removed, put = int(before.tokens[common:].sum()), int(after.tokens[common:].sum())
    return Break(Cause.HISTORY_COMPACTED) if removed >= _COMPACTED * put else None


def _history(removed_tokens: int, put_tokens: int) -> Cause:
    return Cause.HISTORY_COMPACTED if removed_tokens >= _COMPACTED * max(1, put_tokens) else Cause.HISTORY_EDITED


def _recurring_from(after: Prompt, recurring: list[int], common: int) -> int:
    """Tokens of the recurring blocks directly after the common ones: in a fixed order they would be prefix."""
    last = common
    for at in recurring:
        if at != last:
            break
        last += 1
    return int(after.tokens[common:last].sum())
