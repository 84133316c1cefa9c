"""Missed tokens by reason: the first prompt of a session, text that was appended or is new, and prefix breaks by cause.

A prompt is compared with the last prompts of its session (``recent``; agents interleave conversations in one session);
where there are none, with the earlier prompts that share its prefix or most of its text. It breaks the prefix if the
hit ends well before that prompt's end although content after the break recurs, or the conversation continues.

Memory: that of ``recent``. The next request of a session that was forgotten counts as the first of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from semestimate.causes import Break, Cause, Prompt, cause_of, common_blocks, recurring_tokens
from semestimate.recent import MAX_BYTES, RecentPrompts
from semestimate.request import Request
from semestimate.work import Work

MIN_LOST_TOKENS: Final = 64
MIN_LOST_SHARE: Final = 0.01  # of the earlier prompt; engines and recorders cut the last block in different ways
_MAX_CANDIDATE_BLOCKS: Final = 50_000  # of prompts compared with one request


@dataclass(slots=True)
class CauseCount:
    """Requests with this cause, what they had to prefill, and what a change to the prompt would recover."""

    requests: int = 0
    missed: Work = field(default_factory=Work)
    recoverable: Work = field(default_factory=Work)


@dataclass(slots=True)
class Misses:
    """Where missed tokens come from."""

    starts: CauseCount = field(default_factory=CauseCount)
    new_text: CauseCount = field(default_factory=CauseCount)
    breaks: dict[Cause, CauseCount] = field(default_factory=dict)

    def broken_requests(self) -> int:
        return sum(each.requests for each in self.breaks.values())

    def broken_tokens(self) -> int:
        return sum(each.missed.tokens for each in self.breaks.values())


# Causes that need no conversation: they are looked for between sessions too.
_BETWEEN_SESSIONS: Final = frozenset(
    (
        Cause.DATE_OR_ID,
        Cause.TOOLS_REORDERED,
        Cause.TOOLS_CHANGED,
        Cause.DOCUMENT_ORDER,
        Cause.NEW_INSTRUCTION,
        Cause.HEAD_CHANGED,
    )
)


class BreakFinder:
    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.misses = Misses()
        self._recent = RecentPrompts(max_bytes)

    def add(self, request: Request, number: int, hit_tokens: int, related: Iterable[int]) -> Break | None:
        """``related`` are the numbers of earlier requests that share content; used where the session has none."""
        prompt = Prompt(
            keys=request.keys,
            tokens=request.tokens,
            labels=request.labels,
            shapes=request.shapes,
            contents=request.keys if request.bare is None else request.bare,
            tools=request.tools,
            shows=request.shows,
        )
        missed = Work.between(hit_tokens, max(hit_tokens, prompt.prompt_tokens))
        session = None if request.session is None else (request.tenant, request.session)
        if session is not None and self._recent.has_session(session):
            is_known, candidates = True, self._recent.of_session(session)
        else:
            is_known, candidates = False, self._recent.numbered(related)
        found = _against(prompt, candidates, hit_tokens)
        if isinstance(found, Break) and not is_known and found.cause not in _BETWEEN_SESSIONS:
            found = False
        if isinstance(found, Break):
            counted = self.misses.breaks.setdefault(found.cause, CauseCount())
            counted.recoverable += missed.part(min(found.recoverable_tokens, missed.tokens))
        else:
            is_start = not is_known and session is not None
            counted = self.misses.starts if is_start else self.misses.new_text
        counted.requests += 1
        counted.missed += missed
        self._recent.keep(replace(prompt, grew=True) if found is True else prompt, number, session)
        return found if isinstance(found, Break) else None


def _against(prompt: Prompt, candidates: Iterable[Prompt], hit_tokens: int) -> Break | bool:
    """The break; True if the prompt continues an earlier one; False if it is another prompt."""
    ends = np.cumsum(prompt.tokens, dtype=np.int64)
    best: tuple[int, int, Prompt] | None = None
    room = _MAX_CANDIDATE_BLOCKS
    for before in candidates:
        common = common_blocks(before, prompt)
        shared = int(ends[common - 1]) if common else 0
        total = before.prompt_tokens
        if common and total - max(shared, hit_tokens) < max(MIN_LOST_TOKENS, MIN_LOST_SHARE * total):
            return True
        if prompt.shows != "prefix" and room > 0:
            room -= len(before.keys) + len(prompt.keys)
            shared += recurring_tokens(before, prompt, common)
        if best is None or shared > best[0]:
            best = (shared, common, before)
    if best is None or (best[0] == 0 and prompt.shapes is None and prompt.shows != "prefix"):
        return False
    found = cause_of(best[2], prompt, best[1])
    return False if found is None else found
