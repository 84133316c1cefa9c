"""Prefix breaks in the sessions of a trace, and the same trace if breaks are assumed to keep the text after them.

A request breaks its prefix if it continues none of the last ``RECENT`` prompts of its session, but replaces one: it is
at least as long, and no later request of the session continues the replaced prompt. Chained block ids do not show what
follows a break. ``keep_text`` therefore *assumes* it: block i of the new prompt has the content of block i of the old
one, from the block after the first difference to the end of the old prompt (or a given fraction of that). It is an
upper bound: nothing in such a trace says how much of it is true. A trace without sessions shows no breaks at all.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.trace.columns import BlockTrace

RECENT: Final = 8
MIN_LOST_TOKENS: Final = 64
MIN_LOST_FRACTION: Final = 0.01  # of the earlier prompt; recorders cut the last block in different ways


@dataclass(frozen=True, slots=True)
class PrefixBreak:
    """``request`` replaces the prompt of request ``earlier`` and keeps its first ``kept_blocks`` blocks."""

    request: int
    earlier: int
    kept_blocks: int
    following: int  # the first later request that continues ``request``; -1: none


def find_breaks(trace: BlockTrace) -> tuple[PrefixBreak, ...]:
    """In order of the requests. Holds ``RECENT`` requests per session."""
    recent: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=RECENT))
    candidates: list[tuple[int, int, int]] = []
    continued: dict[int, int] = {}  # a request to the first one that continues it
    for request in range(trace.request_count):
        session = int(trace.session[request])
        if session < 0:
            continue
        found = _compare(trace, request, reversed(recent[session]))
        if isinstance(found, int):
            continued.setdefault(found, request)
        elif found is not None:
            candidates.append((request, *found))
        recent[session].append(request)
    return tuple(
        PrefixBreak(request, earlier, kept, continued.get(request, -1))
        for request, earlier, kept in candidates
        if earlier not in continued
    )


def keep_text(trace: BlockTrace, breaks: tuple[PrefixBreak, ...], fraction: float = 1.0) -> BlockTrace:
    """The trace with equal content after the breaks, for a ``fraction`` of what follows each in the old prompt."""
    content = trace.content.copy()
    seen = np.full(trace.node_count, np.iinfo(np.int64).max)
    owner = np.repeat(np.arange(trace.request_count), np.diff(trace.offsets))
    np.minimum.at(seen, trace.nodes, owner)
    for each in breaks:
        old, new = _row(trace, each.earlier), _row(trace, each.request)
        start = each.kept_blocks + 1
        stop = min(start + round(fraction * max(0, len(old) - start)), len(new))
        fresh = np.flatnonzero(seen[new[start:stop]] == each.request) + start
        content[new[fresh]] = content[old[fresh]]
    return replace(trace, content=content)


def _row(trace: BlockTrace, request: int) -> NDArray[np.int32]:
    return trace.nodes[trace.offsets[request] : trace.offsets[request + 1]]


def _compare(trace: BlockTrace, request: int, recent: Iterable[int]) -> int | tuple[int, int] | None:
    """The request that this one continues, or (the request it may replace, blocks kept), or None."""
    row = _row(trace, request)
    best: tuple[int, int] | None = None
    for earlier in recent:
        old = _row(trace, earlier)
        size = min(len(row), len(old))
        differ = np.flatnonzero(row[:size] != old[:size])
        kept = int(differ[0]) if len(differ) else size
        lost, total = int(trace.node_tokens[old[kept:]].sum()), int(trace.node_tokens[old].sum())
        if kept and lost < max(MIN_LOST_TOKENS, MIN_LOST_FRACTION * total):
            return int(earlier)
        if len(row) >= len(old) and (best is None or kept > best[1]):
            best = (int(earlier), kept)
    return best
