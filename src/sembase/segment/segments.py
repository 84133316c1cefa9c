"""Messages or a raw prompt to labelled segments that tile the text: joined together they are the prompt again.

A paragraph inherits the label of the labelled block above it in the same message, so that the second paragraph of a
retrieved document is retrieved context too, and not a user's one-off.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sembase.segment.messages import ROLE_LABELS, Message
from sembase.segment.rules import LABEL_LINE, believed_label, leading_label, look_of

_BLANK_LINE: Final = re.compile(r"\n[ \t]*\n\s*")


@dataclass(frozen=True, slots=True)
class Segment:
    """``content_hash`` is of the exact text, white space included (a model sees it), and not of the label."""

    label: str
    text: str
    role: str | None = None

    @property
    def content_hash(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


def segment_messages(messages: Sequence[Message]) -> tuple[Segment, ...]:
    """One or more segments for each message that holds text."""
    return tuple(segment for message in messages for segment in _segment_message(message))


def segment_prompt(text: str) -> tuple[Segment, ...]:
    """A prompt without roles, as an application hands it to a completions endpoint: its labels are its own."""
    segments: list[Segment] = []
    inherited: str | None = None
    for piece in _pieces(text):
        claimed = leading_label(piece)
        inherited = claimed or inherited
        segments.append(Segment(inherited or look_of(piece), piece))
    return tuple(segments)


def _segment_message(message: Message) -> Iterator[Segment]:
    role_label = ROLE_LABELS[message.role]
    label = role_label
    for piece in _pieces(message.content):
        claimed = leading_label(piece)
        label = believed_label(claimed, role_label) if claimed else label
        yield Segment(message.semantic_type or label, piece, message.role)


def _pieces(text: str) -> list[str]:
    """Cut at blank lines and before lines that open with a label.

    White space goes with the piece after it: a message that grows keeps its earlier pieces as they were.
    """
    cuts = {found.start() for found in _BLANK_LINE.finditer(text)}
    cuts |= {max(0, found.start() - 1) for found in LABEL_LINE.finditer(text)}  # the line break goes along
    edges = [*sorted(cuts - {0}), len(text)]
    pieces: list[str] = []
    start = 0
    for end in edges:
        if text[start:end].strip():
            pieces.append(text[start:end])
            start = end
    if pieces and start < len(text):  # white space behind the last piece
        pieces[-1] += text[start:]
    return pieces
