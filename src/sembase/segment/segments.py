"""Messages or a raw prompt in, labelled segments out. Concatenated, the segments are the prompt again.

A paragraph inherits the label of the labelled block above it in the same message, so that the second paragraph of a
retrieved document is retrieved context too, not user text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    return tuple(segment for message in messages for segment in _segment_message(message))


def segment_prompt(text: str) -> tuple[Segment, ...]:
    """A prompt without roles, as an application sends it to a completions endpoint: all its labels are trusted."""
    segments: list[Segment] = []
    inherited: str | None = None
    for piece in _pieces(text):
        claimed = leading_label(piece)
        inherited = claimed or inherited
        segments.append(Segment(inherited or guess_label(piece), piece))
    return tuple(segments)


def _segment_message(message: Message) -> Iterator[Segment]:
    role_label = ROLE_LABELS[message.role]
    label = role_label
    for piece in _pieces(message.content):
        claimed = leading_label(piece)
        label = trusted_label(claimed, role_label) if claimed else label
        yield Segment(message.semantic_type or label, piece, message.role)


def _pieces(text: str) -> list[str]:
    """Cut at blank lines and before lines that start with a label.

    White space belongs to the piece after it, so a message that grows keeps its earlier pieces unchanged.
    """
    cuts = {found.start() for found in _BLANK_LINE.finditer(text)}
    cuts |= {max(0, found.start() - 1) for found in LABEL_LINE.finditer(text)}  # including the line break
    edges = [*sorted(cuts - {0}), len(text)]
    pieces: list[str] = []
    start = 0
    for end in edges:
        if text[start:end].strip():
            pieces.append(text[start:end])
            start = end
    if pieces and start < len(text):  # trailing white space
        pieces[-1] += text[start:]
    return pieces
