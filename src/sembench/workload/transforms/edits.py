"""Edits of a donor's document with the places where donor and recipient differ, in characters of either prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sembench.manifest import WorkloadItem
from sembench.workload.prompt import base_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import make_item

_CHARS_BETWEEN_EDITS: Final = 800
_MIN_EDITS: Final = 2
_CONTEXT_CHARS: Final = 24


@dataclass(frozen=True, slots=True)
class Edit:
    """``text[start:end]`` of the recipient's document reads ``replacement`` in the donor's."""

    start: int
    end: int
    replacement: str


def edit_budget(text: str) -> int:
    """Maximum number of edits, low enough that long equal spans remain: a hard negative is *nearly* identical."""
    return max(_MIN_EDITS, len(text) // _CHARS_BETWEEN_EDITS)


def edit_every_occurrence(text: str, edits: Sequence[Edit]) -> list[Edit]:
    """Repeats each edit wherever the same words precede or follow, because retrieved passages overlap.

    Otherwise the donor would still state the original fact elsewhere, and reusing it would be correct.
    """
    spread: dict[tuple[int, int], Edit] = {}
    for edit in edits:
        before = text[max(0, edit.start - _CONTEXT_CHARS) : edit.end]
        after = text[edit.start : edit.end + _CONTEXT_CHARS]
        length = edit.end - edit.start
        places = {edit.start}
        places |= {place + len(before) - length for place in _places(before, text)}
        places |= set(_places(after, text))
        for place in places:
            spread.setdefault((place, place + length), Edit(place, place + length, edit.replacement))
    return without_overlap(list(spread.values()))


def _places(part: str, text: str) -> list[int]:
    places: list[int] = []
    place = text.find(part) if part else -1
    while place >= 0:
        places.append(place)
        place = text.find(part, place + 1)
    return places


def without_overlap(edits: Sequence[Edit]) -> list[Edit]:
    """Sorted edits without overlaps; the longer of two wins. Adjacent edits overlap, too: they could cancel out."""
    kept: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, -e.end)):
        if not kept or edit.start > kept[-1].end:
            kept.append(edit)
    return kept


def apply_edits(text: str, edits: Sequence[Edit]) -> tuple[str, list[tuple[int, int]]]:
    """The donor's document and the span of each replacement in it. ``edits`` are ordered and do not overlap."""
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    position = length = 0
    for edit in edits:
        parts += [text[position : edit.start], edit.replacement]
        length += edit.start - position
        spans.append((length, length + len(edit.replacement)))
        length += len(edit.replacement)
        position = edit.end
    return "".join(parts) + text[position:], spans


def edited_donor_item(
    record: SourceRecord,
    transform: str,
    edits: Sequence[Edit],
    *,
    hard_negative: bool,
    extra: Mapping[str, Any] | None = None,
) -> WorkloadItem:
    """The same prompt for both, with an edited document in the donor. Equal spans may be reused, changed tokens not."""
    document, spans = apply_edits(record.context, edits)
    recipient = base_prompt(record)
    donor = base_prompt(record, context=document)
    offset = recipient.index(record.context)
    positions = [
        {"donor": [a + offset, b + offset], "recipient": [edit.start + offset, edit.end + offset]}
        for edit, (a, b) in zip(edits, spans, strict=True)
    ]
    known: dict[str, Any] = {"edits": positions, "hard_negative": hard_negative, **(extra or {})}
    return make_item(record, transform, recipient, [donor], exact=False, semantic=True, materialize=True, extra=known)
