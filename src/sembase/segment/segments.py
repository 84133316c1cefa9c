"""Messages or a raw prompt in, labelled segments out. Concatenated, the segments are the prompt again.

A paragraph inherits the label of the labelled block above it in the same message, so that the second paragraph of a
retrieved document is retrieved context too, not user text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain
from typing import Final

from sembase.segment.messages import ROLE_LABELS, Message
from sembase.segment.rules import LABEL_LINE, guess_label, leading_label, trusted_label

_BLANK_LINE: Final = re.compile(r"\n[ \t]*\n\s*")


@dataclass(frozen=True, slots=True)
class Segment:
    """``content_hash`` covers the exact text including white space, which the model sees, but not the label."""

    label: str
    text: str
    role: str | None = None

    @property
    def content_hash(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


def segment_messages(messages: Sequence[Message]) -> tuple[Segment, ...]:
    """One or more segments for each message that contains text."""
    return tuple(segment for message in messages for segment in iter_segments(message))


def segment_prompt(text: str) -> Iterator[Segment]:
    """A prompt without roles, as an application sends it to a completions endpoint: all its labels are trusted."""
    inherited: str | None = None
    for piece in _pieces(text):
        inherited = leading_label(piece) or inherited
        yield Segment(inherited or guess_label(piece), piece)


def iter_segments(message: Message) -> Iterator[Segment]:
    role_label = ROLE_LABELS[message.role]
    label = role_label
    for piece in _pieces(message.content):
        claimed = leading_label(piece)
        label = trusted_label(claimed, role_label) if claimed else label
        yield Segment(message.semantic_type or label, piece, message.role)


def _pieces(text: str) -> Iterator[str]:
    """Cut at blank lines and before lines that start with a label.

    White space belongs to the piece after it, so a message that grows keeps its earlier pieces unchanged.
    """
    blanks = (found.start() for found in _BLANK_LINE.finditer(text))
    labels = (max(0, found.start() - 1) for found in LABEL_LINE.finditer(text))  # including the line break
    start, piece = 0, ""
    for end in chain(merge(blanks, labels), (len(text),)):
        if text[start:end].strip():
            if piece:
                yield piece
            piece, start = text[start:end], end
    if piece:
        yield piece + text[start:]  # trailing white space
