"""Cheaper than a new cache: changes to prompts that give the prefix back, with the tokens each would save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from semestimate.analysis import Figures
from semestimate.causes import Cause
from semestimate.work import Work

_CHANGES: Final = {
    Cause.DATE_OR_ID: "Move dates, counters and ids from the head of the prompt to its end, or drop them.",
    Cause.TOOLS_REORDERED: "Send the tools in one fixed order, for instance sorted by name.",
    Cause.DOCUMENT_ORDER: "Send retrieved documents in one fixed order, for instance sorted by id.",
    Cause.NEW_INSTRUCTION: "Put the document before the instruction, so that the instruction comes last.",
    Cause.HEAD_CHANGED: "Keep the head of the prompt constant; put what changes (a date, an id, an instruction, tools) "
    "at its end. Records with text show what it is: kvmend proxy --redact-text false.",
}
_HABITS: Final = {
    Cause.TOOLS_CHANGED: "Send all tools in every request of a session; append new ones at the end.",
    Cause.SYSTEM_CHANGED: "Keep the system prompt constant within a session; append what changes as a message.",
    Cause.HISTORY_COMPACTED: "Compact the history less often: all after the summary is prefilled again.",
    Cause.HISTORY_EDITED: "Append to the history instead of editing earlier messages.",
}
_MIN_SHARE: Final = 0.005  # of the missed tokens; less is not worth a line


@dataclass(frozen=True, slots=True)
class Advice:
    """``saved`` is None where the tokens that the change would save are not known, only what the cause costs now."""

    cause: Cause
    change: str
    requests: int
    missed: Work
    saved: Work | None


def advice_for(figures: Figures) -> tuple[Advice, ...]:
    """The change that saves most first; changes of unknown effect last."""
    found = []
    for cause, count in figures.misses.breaks.items():
        if count.missed.tokens < _MIN_SHARE * figures.missed.tokens:
            continue
        if cause in _CHANGES and count.recoverable.tokens:
            found.append(Advice(cause, _CHANGES[cause], count.requests, count.missed, count.recoverable))
        elif cause in _HABITS:
            found.append(Advice(cause, _HABITS[cause], count.requests, count.missed, None))
    return tuple(sorted(found, key=lambda each: (each.saved is None, -(each.saved or each.missed).tokens)))


def recovered(advice: tuple[Advice, ...]) -> Work:
    return sum((each.saved for each in advice if each.saved is not None), Work())
