"""Splits a document into at most N segments without losing a character: joined, the segments are the document.

Keeping only the first N paragraphs would sometimes drop the answer. Only white space at the ends of a segment is
removed, when it is placed into a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sembench.workload.record import SourceRecord

_SEAM: Final = re.compile(r"\n\s*\n|\n|(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])\s*")
_GAP: Final = re.compile(r"\s+")


def segments_of(record: SourceRecord, max_segments: int, min_segment_chars: int) -> list[str]:
    """The record's segments for prompts: stripped, not empty, in source order."""
    if record.passages:
        pieces = _group([passage + "\n\n" for passage in record.passages], max_segments)
    else:
        pieces = split_losslessly(record.context, max_segments, min_segment_chars, whole=record.answers)
    return [piece.strip() for piece in pieces if piece.strip()]


def split_losslessly(text: str, max_segments: int, min_segment_chars: int, whole: Sequence[str] = ()) -> list[str]:
    """Contiguous pieces with ``"".join(pieces) == text``, of about equal size.

    Cuts are made between sentences or, if none ends nearby, between words. They are never made inside one of the
    ``whole`` strings (answers), because reordering the segments would then destroy the answer.
    """
    count = max(1, min(max_segments, len(text) // max(1, min_segment_chars)))
    kept = [span for answer in whole if answer for span in _spans(answer, text)]
    sentences, words = (_cuts(pattern, text, kept) for pattern in (_SEAM, _GAP))
    reach = len(text) // (2 * count)
    cuts = [0]
    for number in range(1, count):
        ideal = len(text) * number // count
        near = [cut for cut in sentences if cuts[-1] < cut and abs(cut - ideal) <= reach]
        usable = near or [cut for cut in words if cuts[-1] < cut and abs(cut - ideal) <= reach]
        if usable:
            cuts.append(min(usable, key=lambda cut: (abs(cut - ideal), cut)))
    return [text[start:end] for start, end in pairwise([*cuts, len(text)])]


def _cuts(pattern: re.Pattern[str], text: str, kept: Sequence[tuple[int, int]]) -> list[int]:
    places = [match.end() for match in pattern.finditer(text) if 0 < match.end() < len(text)]
    return [place for place in places if not any(start < place < end for start, end in kept)]


def _spans(part: str, text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(re.escape(part), text)]


def _group(pieces: list[str], max_groups: int) -> list[str]:
    """Joins neighbouring pieces into at most ``max_groups`` groups with about the same number of pieces each."""
    groups = max(1, min(max_groups, len(pieces)))
    bounds = [len(pieces) * i // groups for i in range(groups + 1)]
    return ["".join(pieces[start:end]) for start, end in pairwise(bounds)]
